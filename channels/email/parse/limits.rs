//! The limits of parsing a mail.

/// The limits of parsing. The remarks of the mail report what exceeds them. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Size of the text, and of the text removed from it.
    pub text: usize,
    /// Size of all text parts together, before conversion.
    pub text_parts: usize,
    /// Number of attachments.
    pub files: usize,
    /// Size of one attachment.
    pub file_size: usize,
    /// Size of all attachments together.
    pub files_size: usize,
    /// Number of MIME parts.
    pub parts: usize,
    /// Depth of nested multiparts.
    pub depth: usize,
    /// Depth of nested mails.
    pub mails: usize,
    /// Number of header fields of one part.
    pub fields: usize,
    /// Size of one header field.
    pub field_size: usize,
    /// Number of addresses of one field, such as To.
    pub addresses: usize,
    /// The number of Message-IDs in References. The first and the last half of a longer list are kept.
    pub references: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        Self {
            text: 200_000,
            text_parts: 4_000_000,
            files: 50,
            file_size: 30_000_000,
            files_size: 40_000_000,
            parts: 1_000,
            depth: 20,
            mails: 3,
            fields: 1_000,
            field_size: 64_000,
            addresses: 100,
            references: 100,
        }
    }
}
