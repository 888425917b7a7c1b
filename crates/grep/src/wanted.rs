//! What is told of the lines that are selected.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

/// Most lines of context, before and after.
pub const MAX_CONTEXT: u32 = 10_000;

nasd_xdr::xdr_enum! {
    /// What of a selected line is given.
    pub enum Give {
        /// That there is one.
        Count = 0,
        /// All of it.
        Lines = 1,
        /// What in it matches, each by itself.
        Matches = 2,
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What of a selected line is given.
    pub give: Give,
    /// Those lines are selected that don't match. Of them `Matches` gives nothing.
    pub is_inverted: bool,
    /// Lines before a selected one that are given too; only with `Lines`, as those after.
    pub before: u32,
    /// Lines after a selected one that are given too.
    pub after: u32,
    /// Lines are counted, so that their numbers are known.
    pub numbers: bool,
    /// The most lines that are selected.
    pub most: Option<u64>,
}

impl Default for Wanted {
    fn default() -> Self {
        let (give, most) = (Give::Lines, None);
        Wanted { give, is_inverted: false, before: 0, after: 0, numbers: false, most }
    }
}

impl Wanted {
    /// With what makes no difference left out.
    #[must_use]
    pub fn plain(mut self) -> Wanted {
        if self.give != Give::Lines {
            // There is none.
            (self.before, self.after) = (0, 0);
        }
        if self.give == Give::Matches && self.is_inverted {
            // In them nothing matches.
            self.give = Give::Count;
        }
        // What is context is known by its number.
        self.numbers |= self.has_context();
        self
    }

    /// Whether other lines are given than those that are selected.
    pub fn has_context(&self) -> bool {
        self.before > 0 || self.after > 0
    }
}

impl XdrEncode for Wanted {
    fn encode(&self, out: &mut Encoder) {
        self.give.encode(out);
        out.bool(self.is_inverted);
        out.u32(self.before);
        out.u32(self.after);
        out.bool(self.numbers);
        out.optional(self.most.as_ref());
    }
}

impl XdrDecode for Wanted {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let lines = |input: &mut Decoder<'_>| match input.u32()? {
            lines @ ..=MAX_CONTEXT => Ok(lines),
            _ => Err(XdrError::Invalid("more lines of context than there may be")),
        };
        Ok(Wanted {
            give: input.enumeration()?,
            is_inverted: input.bool()?,
            before: lines(input)?,
            after: lines(input)?,
            numbers: input.bool()?,
            most: input.optional()?,
        })
    }
}
