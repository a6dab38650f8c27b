//! Attacks on the real program from outside: what each tries, and that it gains nothing.

mod files;
mod network;
mod output;
mod sandbox;
mod storage;
mod systemd_unit;
mod trust;
mod trust_page;
mod trust_shared;
