//! Declares the texts: a struct with a field for each, and a list of all of them.

macro_rules! texts {
    ($($(#[$doc:meta])* pub $name:ident: &'static str,)*) => {
        /// The texts of one language, borrowed from this module or from a theme.
        #[derive(Clone, Copy, Debug)]
        pub struct Text<'a> {
            $($(#[$doc])* pub $name: &'a str,)*
        }

        impl<'a> Text<'a> {
            /// Every text with its name, in the order of the pages.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// These texts, with others in the place of some.
            #[must_use]
            pub fn with(mut self, others: &'a BTreeMap<String, String>) -> Self {
                $(if let Some(other) = others.get(stringify!($name)) {
                    self.$name = other;
                })*
                self
            }
        }
    };
}
