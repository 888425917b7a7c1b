//! JSON into a tree, by recursion.

use super::V;
use nasd_filter::Type;

/// A value of a member.
#[derive(Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Other,
    Number(String),
    Text(Vec<u8>),
}

/// The value of a member as a column's.
pub fn value(kind: Type, member: &Json) -> Option<V> {
    match (kind, member) {
        (_, Json::Null) => Some(V::Null),
        (Type::Bool, Json::Bool(value)) => Some(V::Bool(*value)),
        (Type::Int, Json::Number(number)) => number.parse().ok().map(V::Int),
        (Type::Float, Json::Number(number)) => number.parse().ok().map(V::Float),
        (Type::Text, Json::Text(text)) => Some(V::Text(text.clone())),
        _ => None,
    }
}

/// A name and its value.
type Member = (Vec<u8>, Json);

/// The members of the object that a line is.
pub fn object(line: &[u8]) -> Option<Vec<Member>> {
    let mut at = 0;
    spaces(line, &mut at);
    let members = members(line, &mut at, 1)?;
    spaces(line, &mut at);
    (at == line.len()).then_some(members)
}

fn spaces(line: &[u8], at: &mut usize) {
    while line.get(*at).is_some_and(|byte| b" \t\r".contains(byte)) {
        *at += 1;
    }
}

fn members(line: &[u8], at: &mut usize, level: usize) -> Option<Vec<Member>> {
    let mut all = Vec::new();
    eat(line, at, b'{')?;
    spaces(line, at);
    if eat(line, at, b'}').is_some() {
        return Some(all);
    }
    loop {
        spaces(line, at);
        let name = string(line, at)?;
        spaces(line, at);
        eat(line, at, b':')?;
        all.push((name, any(line, at, level)?));
        spaces(line, at);
        if eat(line, at, b'}').is_some() {
            return Some(all);
        }
        eat(line, at, b',')?;
    }
}

fn eat(line: &[u8], at: &mut usize, byte: u8) -> Option<()> {
    (line.get(*at) == Some(&byte)).then(|| *at += 1)
}

fn any(line: &[u8], at: &mut usize, level: usize) -> Option<Json> {
    spaces(line, at);
    let words = [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))];
    for (word, value) in words {
        if line[*at..].starts_with(word.as_bytes()) {
            *at += word.len();
            return Some(value);
        }
    }
    match line.get(*at)? {
        b'"' => string(line, at).map(Json::Text),
        b'{' if level < 64 => members(line, at, level + 1).map(|_| Json::Other),
        b'[' if level < 64 => {
            *at += 1;
            spaces(line, at);
            if eat(line, at, b']').is_some() {
                return Some(Json::Other);
            }
            loop {
                any(line, at, level + 1)?;
                spaces(line, at);
                if eat(line, at, b']').is_some() {
                    return Some(Json::Other);
                }
                eat(line, at, b',')?;
            }
        }
        _ => number(line, at),
    }
}

fn number(line: &[u8], at: &mut usize) -> Option<Json> {
    let start = *at;
    let digits = |at: &mut usize| {
        let first = *at;
        while line.get(*at).is_some_and(u8::is_ascii_digit) {
            *at += 1;
        }
        &line[first..*at]
    };
    let _ = eat(line, at, b'-');
    let whole = digits(at);
    if whole.is_empty() || (whole.len() > 1 && whole[0] == b'0') {
        return None;
    }
    if eat(line, at, b'.').is_some() && digits(at).is_empty() {
        return None;
    }
    if eat(line, at, b'e').or_else(|| eat(line, at, b'E')).is_some() {
        let _ = eat(line, at, b'+').or_else(|| eat(line, at, b'-'));
        if digits(at).is_empty() {
            return None;
        }
    }
    Some(Json::Number(String::from_utf8(line[start..*at].to_vec()).unwrap()))
}

fn string(line: &[u8], at: &mut usize) -> Option<Vec<u8>> {
    eat(line, at, b'"')?;
    let mut text = Vec::new();
    loop {
        let byte = *line.get(*at)?;
        *at += 1;
        match byte {
            b'"' => return Some(text),
            b'\\' => {
                let escaped = *line.get(*at)?;
                *at += 1;
                if escaped == b'u' {
                    let mut units = vec![unit(line, at)?];
                    if (0xd800..0xdc00).contains(&units[0]) {
                        eat(line, at, b'\\')?;
                        eat(line, at, b'u')?;
                        units.push(unit(line, at)?);
                    }
                    text.extend(String::from_utf16(&units).ok()?.bytes());
                } else {
                    let place = b"\"\\/bfnrt".iter().position(|other| *other == escaped)?;
                    text.push(b"\"\\/\x08\x0c\n\r\t"[place]);
                }
            }
            0..0x20 => return None,
            _ => text.push(byte),
        }
    }
}

fn unit(line: &[u8], at: &mut usize) -> Option<u16> {
    let digits = std::str::from_utf8(line.get(*at..*at + 4)?).ok()?;
    *at += 4;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}
