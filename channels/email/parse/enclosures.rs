//! The files of a mail, as many as the limits allow.

use super::clean::{clean_line, cut_to};
use super::limits::ReadLimits;
use super::mime::Part;
use crate::email::letter::Enclosed;

/// A smaller picture that only the HTML shows is a logo.
const MAX_LOGO: usize = 10_000;
/// More remarks say nothing new.
const MAX_REMARKS: usize = 30;
/// A longer name is cut.
const MAX_NAME: usize = 300;

/// What is collected from all parts of a mail, and of mails in it.
pub struct Enclosures<'l> {
    limits: &'l ReadLimits,
    files: Vec<Enclosed>,
    size: usize,
    remarks: Vec<String>,
}

impl<'l> Enclosures<'l> {
    pub fn new(limits: &'l ReadLimits) -> Self {
        Self { limits, files: Vec::new(), size: 0, remarks: Vec::new() }
    }

    pub fn finish(self) -> (Vec<Enclosed>, Vec<String>) {
        (self.files, self.remarks)
    }

    /// Says of the mail what its text does not; the same is said once.
    pub fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        if self.remarks.len() < MAX_REMARKS && !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Takes a part as a file, unless it is too large or one too many: that is known before it is decoded.
    pub fn file(&mut self, part: &Part<'_>, is_related: bool) {
        let transfer = part.transfer();
        let size = transfer.decoded_size(part.body);
        let media_type = media_type(&part.content.value);
        let is_picture = media_type.starts_with("image/");
        if is_picture && is_related && part.fields.first("content-id").is_some() && size < MAX_LOGO {
            let shown = clean_line(&self.name(part, &media_type));
            self.remark(format!(
                "A small picture in the text ({shown:?}, {}) was taken for decoration and left out.",
                megabytes(size)
            ));
            return;
        }
        let name = self.name(part, &media_type);
        let shown = clean_line(&name);
        if self.files.len() >= self.limits.files {
            self.remark(format!(
                "More than {} files came with this mail; {shown:?} and those after it were left out.",
                self.limits.files
            ));
        } else if size > self.limits.file_size + 2 {
            let limit = megabytes(self.limits.file_size);
            self.remark(format!("The file {shown:?} ({}) was left out: it is larger than {limit}.", megabytes(size)));
        } else if self.size + size > self.limits.files_size + 2 {
            let limit = megabytes(self.limits.files_size);
            self.remark(format!(
                "The file {shown:?} ({}) was left out: all files together are larger than {limit}.",
                megabytes(size)
            ));
        } else {
            let mut bytes = transfer.decode(part.body, self.limits.file_size);
            bytes.shrink_to_fit();
            self.size += bytes.len();
            self.files.push(Enclosed { name, media_type, bytes });
        }
    }

    /// The file's name, or one after its kind.
    fn name(&self, part: &Part<'_>, media_type: &str) -> String {
        let mut name = part.file_name().map(clean_line).unwrap_or_default();
        cut_to(&mut name, MAX_NAME);
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

/// A media type that is one; anything else is `application/octet-stream` (RFC 2045, section 5.2).
fn media_type(value: &str) -> String {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    match value.split_once('/') {
        Some((kind, subtype)) if value.len() <= 127 && is_token(kind) && is_token(subtype) => value.to_owned(),
        _ => "application/octet-stream".to_owned(),
    }
}

fn megabytes(bytes: usize) -> String {
    match bytes {
        ..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}
