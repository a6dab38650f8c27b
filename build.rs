//! How the program is linked.

/// Which code lies together.
const ORDER: &str = "link/order.ld";

/// Set where it is to lie as it comes. `cargo xtask order` does so: valgrind finds names in `.text` alone.
const UNORDERED: &str = "DAOYOU_UNORDERED";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Tells the loader of the program's own addresses in 50 KB instead of 1.4 MB, all of which it reads at each start. glibc
    // knows the form since 2.36, and a linker that does not know it says so and goes on without.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        order();
    }
}

/// Lays what each start and each turn runs through together, so that it is read into memory without what lay between:
/// 5.6 MB less for an idle gateway. `cargo xtask order` writes the list. A function that it names and that is gone is passed
/// over, one that it does not name lies behind; so an old list costs memory and nothing else.
fn order() {
    println!("cargo::rerun-if-changed={ORDER}");
    println!("cargo::rerun-if-env-changed={UNORDERED}");
    // Rust's own linker here, and that of binutils, take the list; one that somebody chose may not.
    let is_chosen = variable("CARGO_ENCODED_RUSTFLAGS").contains("-fuse-ld=");
    let is_wanted = variable("PROFILE") == "release" && variable(UNORDERED).is_empty();
    if is_wanted && target("ARCH") == "x86_64" && !is_chosen {
        // Of the build's own folder: cargo goes on with what was said here when the project has moved.
        let copy = format!("{}/order.ld", variable("OUT_DIR"));
        match std::fs::copy(ORDER, &copy) {
            Ok(_) => println!("cargo::rustc-link-arg-bins=-Wl,-T,{copy}"),
            Err(error) => println!("cargo::warning={ORDER}: {error}; the program will need more memory"),
        }
    }
}

fn target(what: &str) -> String {
    variable(&format!("CARGO_CFG_TARGET_{what}"))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
