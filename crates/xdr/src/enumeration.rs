//! Enumerations: a Rust enum, its numbers, and strict conversion from a number.

/// A number that is no value of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value} is not a value of {enumeration}")]
pub struct UnknownValue {
    /// The Rust name of the enumeration.
    pub enumeration: &'static str,
    /// What the message holds instead.
    pub value: u32,
}

/// Declares an enumeration of the wire: the enum, `ALL` (its values in order of declaration),
/// `From<Enum> for u32`, `TryFrom<u32>`, [`XdrEncode`](crate::XdrEncode) and
/// [`XdrDecode`](crate::XdrDecode).
///
/// Numbers are unsigned here; RFC 4506 has them signed, but no NASD enumeration is negative and
/// the encoded bytes are the same.
///
/// ```
/// nasd_xdr::xdr_enum! {
///     /// How it went.
///     pub enum Outcome {
///         /// Well.
///         Good = 0,
///         /// Not well.
///         Bad = 7,
///     }
/// }
/// assert_eq!(Outcome::try_from(7), Ok(Outcome::Bad));
/// assert!(Outcome::try_from(1).is_err());
/// ```
#[macro_export]
macro_rules! xdr_enum {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $value:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        $visibility enum $name {
            $( $(#[$variant_meta])* $variant = $value, )+
        }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [$name] = &[$( $name::$variant, )+];
        }

        impl ::core::convert::From<$name> for u32 {
            fn from(value: $name) -> u32 {
                value as u32
            }
        }

        impl ::core::convert::TryFrom<u32> for $name {
            type Error = $crate::UnknownValue;

            fn try_from(value: u32) -> ::core::result::Result<Self, Self::Error> {
                match value {
                    $( $value => Ok($name::$variant), )+
                    _ => Err($crate::UnknownValue { enumeration: stringify!($name), value }),
                }
            }
        }

        impl $crate::XdrEncode for $name {
            fn encode(&self, out: &mut $crate::Encoder) {
                out.u32(*self as u32);
            }
        }

        impl $crate::XdrDecode for $name {
            fn decode(
                input: &mut $crate::Decoder<'_>,
            ) -> ::core::result::Result<Self, $crate::XdrError> {
                input.enumeration()
            }
        }
    };
}
