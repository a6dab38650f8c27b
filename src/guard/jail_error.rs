//! The reasons why the jail does not serve a path.

use std::io;

use thiserror::Error;

/// The reason why the jail does not serve a path, worded for the model.
#[derive(Debug, Error)]
pub enum JailError {
    #[error("the path is empty")]
    Empty,
    #[error("the path is not valid: {0}")]
    Invalid(&'static str),
    #[error("{0}: outside the workspace; only paths inside it can be used")]
    Outside(String),
    #[error("{0}: off limits, it holds keys or daoyou's own data")]
    Protected(String),
    #[error("{0}: this agent's permissions do not allow it; do it another way, or say that you cannot")]
    NotPermitted(String),
    #[error("{0}: no such file or folder")]
    Missing(String),
    #[error("{0}: is a folder; use list_dir")]
    Folder(String),
    #[error("{0}: is not a folder")]
    NotFolder(String),
    #[error("{0}: is not a regular file (a pipe, socket or device)")]
    Special(String),
    #[error("{0}: has more than one name (a hard link), so it may belong outside the workspace")]
    HardLink(String),
    #[error("{0}: is a link, or lies behind one, and daoyou follows none here; put the file itself there")]
    Link(String),
    #[error(
        "{0}: is a link whose target does not exist, or lies behind one; use the path of the target, or delete the link"
    )]
    DanglingLink(String),
    #[error("{path}: is an absolute link, or lies behind one, and daoyou follows only relative ones; use {target}")]
    AbsoluteLink { path: String, target: String },
    #[error("{0}: lies on another mount than the workspace, and daoyou reads none here; put the file itself there")]
    Mount(String),
    #[error("{path}: has {size} bytes, more than the limit of {limit}")]
    TooLarge { path: String, size: u64, limit: u64 },
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
}

impl JailError {
    pub(super) fn from_io(path: &str, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::IsADirectory => Self::Folder(path),
            io::ErrorKind::NotADirectory => Self::NotFolder(path),
            // An error of cap-std itself carries no error number of the system.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::Outside(path),
            _ if error.raw_os_error() == Some(libc::EXDEV) => Self::Outside(path),
            _ => Self::Io { path, error },
        }
    }

    /// Converts an I/O error of a strict jail, which follows no links and crosses no mounts.
    pub(super) fn from_strict_io(path: &str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ELOOP) => Self::Link(path.to_owned()),
            Some(libc::EXDEV) => Self::Mount(path.to_owned()),
            _ => Self::from_io(path, error),
        }
    }
}
