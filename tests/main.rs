//! Stories through the real binary, one module each.

mod exec;
