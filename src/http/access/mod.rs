//! Who may use the HTTP server, and for what: the token of the gateway, named tokens with a scope, and logins of the page.

mod authenticator;
mod middleware;
mod principal;
mod rules;
mod token;

pub use authenticator::{Authenticator, CODE_LIFETIME, NewLogin};
pub use middleware::{AccessCheck, require_access};
pub use principal::{Credential, Principal, TokenScope};
pub use token::{is_token_name, new_token, secret_hash};
