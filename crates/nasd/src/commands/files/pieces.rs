//! JSON documents that are written piece by piece, as they may be larger than memory: laid out as [`output::json`] does it, which has
//! them as a whole.
//!
//! [`output::json`]: crate::output::json

use serde::Serialize;

/// A list, item by item.
pub struct List {
    depth: usize,
    is_empty: bool,
}

impl List {
    /// One that stands in so many lists and objects.
    pub const fn new(depth: usize) -> List {
        List { depth, is_empty: true }
    }

    /// Whether no item has begun.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Appends what stands before the next item.
    pub fn begin_item(&mut self, out: &mut Vec<u8>) {
        out.push(if self.is_empty { b'[' } else { b',' });
        self.is_empty = false;
        begin_line(out, self.depth + 1);
    }

    /// Appends an item.
    ///
    /// # Errors
    /// What JSON can't tell.
    pub fn item(&mut self, out: &mut Vec<u8>, item: &impl Serialize) -> serde_json::Result<()> {
        self.begin_item(out);
        put(out, item, self.depth + 1)
    }

    /// Appends its end.
    pub fn end(&self, out: &mut Vec<u8>) {
        match self.is_empty {
            true => out.push(b'['),
            false => begin_line(out, self.depth),
        }
        out.push(b']');
    }
}

/// Begins a line of what stands in so many lists and objects.
pub fn begin_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// Appends a value that stands in so many lists and objects.
///
/// # Errors
/// What JSON can't tell.
pub fn put(out: &mut Vec<u8>, value: &impl Serialize, depth: usize) -> serde_json::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    // Those of texts are escaped, so each line end is one of the layout.
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            begin_line(out, depth);
        }
        out.extend_from_slice(line.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_make_the_whole_document() {
        for items in [vec![], vec![json!({ "a": [1, {}] })], vec![json!("a\nb"), json!([[]])]] {
            let (mut out, mut list) = (b"{\n  \"rows\": ".to_vec(), List::new(1));
            for item in &items {
                list.item(&mut out, item).unwrap();
            }
            assert_eq!(list.is_empty(), items.is_empty());
            list.end(&mut out);
            out.extend_from_slice(b"\n}");
            let whole = serde_json::to_string_pretty(&json!({ "rows": items })).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), whole);
        }
    }
}
