//! How much of a mail is read.

/// What is over is left out, and the letter's remarks say so. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Of the text, and of what is cut from it: each at most this.
    pub text: usize,
    /// Of all text parts together, before they are converted.
    pub text_parts: usize,
    /// Number of files.
    pub files: usize,
    /// Of one file.
    pub file_size: usize,
    /// Of all files together.
    pub files_size: usize,
    /// Number of MIME parts.
    pub parts: usize,
    /// How deep multiparts may stand in each other.
    pub depth: usize,
    /// How deep mails may stand in each other.
    pub mails: usize,
    /// Number of header fields of one part.
    pub fields: usize,
    /// Of one header field.
    pub field_size: usize,
    /// Number of addresses of one kind.
    pub addresses: usize,
    /// Message-IDs in References; the first and the last half of them are kept.
    pub references: usize,
}

impl Default for ReadLimits {
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
