/// Adds a method for each named setting: it returns the settings with that one changed. The method is named like
/// the field. Settings are `#[non_exhaustive]`, so that a new one breaks no user; a user begins with the
/// defaults and changes what matters.
///
/// ```
/// #[non_exhaustive]
/// #[derive(Debug, Default, PartialEq)]
/// pub struct Limits {
///     /// Number of connections.
///     pub connections: usize,
///     /// Number of packets.
///     pub replies: usize,
/// }
///
/// firstflight_wire::setters! {
///     Limits {
///         connections: usize,
///         replies: usize,
///     }
/// }
///
/// let limits = Limits::default().connections(10);
/// assert_eq!((limits.connections, limits.replies), (10, 0));
/// ```
#[macro_export]
macro_rules! setters {
    ($settings:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $settings {
            $(
                #[doc = concat!("Changes [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
