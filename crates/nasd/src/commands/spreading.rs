//! How files are to be spread over drives, as a user asks for it: what can't be, or says nothing, is told before
//! anything is made.

use crate::arguments::Stripe;
use nasd_layout::Shape;

/// Bytes of a stripe unit, if nothing is said.
const UNIT: u64 = 512 << 10;

/// Copies of raid1, if nothing is said.
const COPIES: u16 = 2;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Asked {
    pub stripe: Stripe,
    pub width: Option<u16>,
    pub unit: Option<u64>,
    pub copies: Option<u16>,
}

/// What that comes to: bytes of a unit, drives that a file lies on (0 for all there are), and copies of each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spreading {
    pub unit: u64,
    pub width: u16,
    pub copies: u16,
}

impl Asked {
    /// How files are spread over so many drives; `None` where they are not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn over(self, drives: u64) -> Result<Option<Spreading>, String> {
        let Asked { stripe, width, unit, copies } = self;
        let copies = match stripe {
            Stripe::None if width.is_some() || unit.is_some() || copies.is_some() => {
                return Err(
                    "width, unit and copies say how files are spread: choose --stripe raid0 or \
                            --stripe raid1 too"
                        .to_owned(),
                );
            }
            Stripe::None => return Ok(None),
            Stripe::Raid0 if copies.is_some() => {
                return Err(
                    "--copies: raid0 keeps each byte once; --stripe raid1 keeps several".to_owned()
                );
            }
            Stripe::Raid0 => 1,
            Stripe::Raid1 => copies.unwrap_or(COPIES),
        };
        let (unit, width) = (unit.unwrap_or(UNIT), width.unwrap_or(0));
        if u64::from(width) > drives {
            return Err(format!(
                "files can't lie on {width} drives each: there are only {drives} drives"
            ));
        }
        let all = u16::try_from(drives).unwrap_or(u16::MAX).min(Shape::MAX_WIDTH);
        let shape = Shape::new(unit, if width == 0 { all } else { width }, copies);
        shape.map_err(|error| format!("files can't be spread so over {drives} drives: {error}"))?;
        Ok(Some(Spreading { unit, width, copies }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Asked = Asked { stripe: Stripe::None, width: None, unit: None, copies: None };

    #[test]
    fn what_is_not_said_has_a_default() {
        let spread = |unit, width, copies| Ok(Some(Spreading { unit, width, copies }));
        assert_eq!(NOTHING.over(3), Ok(None));
        let raid0 = Asked { stripe: Stripe::Raid0, ..NOTHING };
        assert_eq!(raid0.over(3), spread(512 << 10, 0, 1));
        let raid1 = Asked { stripe: Stripe::Raid1, ..NOTHING };
        assert_eq!(raid1.over(3), spread(512 << 10, 0, 2));
        let all = Asked { width: Some(3), unit: Some(4096), copies: Some(3), ..raid1 };
        assert_eq!(all.over(3), spread(4096, 3, 3));
    }

    #[test]
    fn what_cant_be_or_says_nothing_is_refused() {
        let (raid0, raid1) = (Stripe::Raid0, Stripe::Raid1);
        for (asked, word) in [
            (Asked { width: Some(2), ..NOTHING }, "choose --stripe"),
            (Asked { unit: Some(4096), ..NOTHING }, "choose --stripe"),
            (Asked { copies: Some(2), ..NOTHING }, "choose --stripe"),
            (Asked { stripe: raid0, copies: Some(2), ..NOTHING }, "raid0 keeps each byte once"),
            (Asked { stripe: raid0, width: Some(4), ..NOTHING }, "only 3 drives"),
            (Asked { stripe: raid0, unit: Some(1000), ..NOTHING }, "multiple"),
            (Asked { stripe: raid1, copies: Some(4), ..NOTHING }, "at most as often"),
        ] {
            let said = asked.over(3).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
    }
}
