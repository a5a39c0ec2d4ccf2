//! Enums that are numbers on the wire.

/// Defines an enum of numbers on the wire from one table, so that no value lacks its label for machines or its
/// sentence for people.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($variant:ident = $number:literal $label:literal $sentence:literal)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = concat!("`", $label, "`, number ", $number, ": ", $sentence, ".")] $variant = $number,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The value with this number.
            #[must_use]
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// The value's label in kebab-case.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),* }
            }
        }

        /// Shows the value's sentence.
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $sentence),* })
            }
        }
    };
}
pub(super) use numbered;
