//! The soname. It changes when programs have to be compiled again: with `FF_ABI` in the header.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfirstflight.so.0");
    }
}
