//! Paths of Unix sockets that are too long for an address.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

/// The longest path in the address of a Unix socket, in bytes (unix(7): `sun_path` has 108 bytes and ends with a zero).
const MAX_PATH: usize = 107;

/// A path under which this process binds or connects to a Unix socket. A path that is too long for an address leads through an open
/// descriptor of the socket's folder, for which `/proc` must be mounted; it is valid as long as this value exists.
#[derive(Clone, Debug)]
pub struct SocketPath {
    path: PathBuf,
    _folder: Option<Arc<OwnedFd>>,
}

impl SocketPath {
    /// Returns the path for the socket at `socket`.
    ///
    /// # Errors
    /// The path is too long, and its folder cannot be opened.
    pub fn new(socket: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Ok(Self { path: socket.to_owned(), _folder: None });
        };
        if socket.as_os_str().len() <= MAX_PATH {
            return Ok(Self { path: socket.to_owned(), _folder: None });
        }
        let flags = (OFlags::PATH | OFlags::DIRECTORY).bits().cast_signed();
        let folder = OwnedFd::from(File::options().read(true).custom_flags(flags).open(folder)?);
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(Arc::new(folder)) })
    }

    pub fn as_path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_in_a_folder_with_a_long_name_is_bound_and_found() {
        let folder = tempfile::tempdir().unwrap();
        let shortest = folder.path().join("x").join("daoyou.sock").as_os_str().len();
        for length in [shortest, MAX_PATH, MAX_PATH + 1, shortest + 200] {
            let long = folder.path().join("x".repeat(1 + length - shortest));
            std::fs::create_dir(&long).unwrap();
            let socket = long.join("daoyou.sock");
            assert_eq!(socket.as_os_str().len(), length);
            let _listener = UnixListener::bind(SocketPath::new(&socket).unwrap().as_path()).unwrap();
            assert!(socket.exists(), "{length}");
            UnixStream::connect(SocketPath::new(&socket).unwrap().as_path()).unwrap();
        }
        assert!(SocketPath::new(&folder.path().join("y".repeat(200)).join("daoyou.sock")).is_err());
    }
}
