//! Collects the attachments of a mail within the limits.

use super::limits::ParseLimits;
use super::mime::MimePart;
use crate::attachment_folder::IncomingFile;
use crate::sanitize::sanitize_line;
use crate::text::format_size;

/// The size in bytes below which an image that only the HTML displays counts as decoration.
const MAX_LOGO: usize = 10_000;
/// Largest number of remarks.
const MAX_REMARKS: usize = 30;
/// Longest file name in bytes; of a longer one, the end is kept, because it has the extension.
const MAX_NAME: usize = 300;

/// Collects the attachments and remarks of a mail and of the mails inside it.
pub struct AttachmentCollector<'l> {
    limits: &'l ParseLimits,
    files: Vec<IncomingFile>,
    size: usize,
    remarks: Vec<String>,
}

impl<'l> AttachmentCollector<'l> {
    pub fn new(limits: &'l ParseLimits) -> Self {
        Self { limits, files: Vec::new(), size: 0, remarks: Vec::new() }
    }

    pub fn finish(self) -> (Vec<IncomingFile>, Vec<String>) {
        (self.files, self.remarks)
    }

    /// Adds a remark about the mail, unless it was added before.
    pub fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        if self.remarks.len() < MAX_REMARKS && !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Adds a part as an attachment, unless the part exceeds a limit. The limits are checked before decoding.
    pub fn add(&mut self, part: &MimePart<'_>, is_related: bool) {
        let transfer_encoding = part.transfer_encoding();
        let size = transfer_encoding.decoded_size(part.body);
        let media_type = valid_media_type(&part.content.value);
        let is_image = media_type.starts_with("image/");
        let is_decoration = is_image && is_related && part.fields.first("content-id").is_some() && size < MAX_LOGO;
        let name = self.file_name(part, &media_type);
        let (shown, shown_size) = (sanitize_line(&name), format_size(size as u64));
        let ParseLimits { files, file_size, files_size, .. } = *self.limits;
        if is_decoration {
            self.remark(format!("A small image in the text ({shown:?}, {shown_size}) was left out as decoration."));
        } else if self.files.len() >= files {
            self.remark(format!(
                "More than {files} files came with this mail; {shown:?} and those after it were left out."
            ));
        } else if size > file_size {
            let limit = format_size(file_size as u64);
            self.remark(format!("The file {shown:?} ({shown_size}) was left out: it is larger than {limit}."));
        } else if self.size + size > files_size {
            let limit = format_size(files_size as u64);
            self.remark(format!(
                "The file {shown:?} ({shown_size}) was left out: all files together are larger than {limit}."
            ));
        } else {
            let mut bytes = transfer_encoding.decode(part.body, file_size);
            bytes.shrink_to_fit();
            self.size += bytes.len();
            self.files.push(IncomingFile { name, media_type, bytes });
        }
    }

    /// Returns the name of the attachment, or a name derived from its media type.
    fn file_name(&self, part: &MimePart<'_>, media_type: &str) -> String {
        let mut name = part.file_name().map(sanitize_line).unwrap_or_default();
        name.drain(..name.ceil_char_boundary(name.len().saturating_sub(MAX_NAME)));
        if !name.is_empty() {
            return name;
        }
        let (kind, subtype) = media_type.split_once('/').unwrap_or(("file", "bin"));
        let ending = match media_type {
            "text/plain" => "txt",
            "image/jpeg" => "jpg",
            "message/rfc822" | "message/global" => "eml",
            "text/calendar" | "application/ics" => "ics",
            "image/svg+xml" => "svg",
            _ if subtype.len() <= 5 && subtype.bytes().all(|byte| byte.is_ascii_alphanumeric()) => subtype,
            _ => "bin",
        };
        let kind = if matches!(kind, "image" | "audio" | "video" | "message") { kind } else { "file" };
        format!("{kind}-{}.{ending}", self.files.len() + 1)
    }
}

/// Returns a valid media type; anything else becomes `application/octet-stream` (RFC 2045, section 5.2).
fn valid_media_type(value: &str) -> String {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    match value.split_once('/') {
        Some((kind, subtype)) if value.len() <= 127 && is_token(kind) && is_token(subtype) => value.to_owned(),
        _ => "application/octet-stream".to_owned(),
    }
}
