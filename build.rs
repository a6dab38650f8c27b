//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    // Tells the loader of the program's own addresses in 50 KB instead of 1.4 MB, all of which it reads at each start. glibc
    // knows the form since 2.36, and a linker that does not know it says so and goes on without.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
