//! Authentication and authorization of the HTTP server: the token of the gateway, named tokens with a scope, and logins of the page.

mod authenticator;
mod login_codes;
mod middleware;
mod principal;
mod rules;
mod token;

pub use authenticator::{Authenticator, NewLogin, StreamAccess};
pub use login_codes::LoginCode;
pub use middleware::{AccessCheck, require_access};
#[cfg(test)]
pub use principal::ClientCredential;
pub use principal::Principal;
