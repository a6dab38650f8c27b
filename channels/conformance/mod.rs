//! What every channel must pass.
