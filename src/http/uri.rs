//! Request targets: their forms (RFC 9112 section 3.2) and the normalisation of paths before
//! routing (RFC 3986 section 6.2.2).

/// What a route lets stand in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `%2F`: default kept as data.
    pub encoded_slash: Allow,
    /// `\` and `%5C`: default refused.
    pub backslash: Deny,
    /// `..;` segments (path parameters on a dot segment): default passed as sent.
    pub dot_dot_semicolon: Allow,
    /// `%00`: default refused.
    pub nul: Deny,
}

/// `"keep"` or `"refuse"`, keep by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allow {
    /// Passed as sent.
    #[default]
    Keep,
    /// 400.
    Refuse,
}

/// `"refuse"` or `"keep"`, refuse by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deny {
    /// 400.
    #[default]
    Refuse,
    /// Passed as sent.
    Keep,
}
