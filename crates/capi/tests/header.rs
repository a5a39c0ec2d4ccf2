//! `firstflight.h` says what the library has: each function with its types, each number, each structure, and the soname.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "not of every test")]
mod build;

use build::{built, has, here, succeed};
use firstflight_capi::client::ff_client_options;
use firstflight_capi::descriptor::ff_host;
use firstflight_capi::outcome::ff_outcome;
#[cfg(feature = "runtime")]
use firstflight_capi::runtime::{ff_server_options, ff_start_options};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

fn header() -> String {
    std::fs::read_to_string(here("include/firstflight.h")).unwrap()
}

/// The header without its comments.
fn bare_header() -> String {
    let text = header();
    let mut parts = text.split("/*");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |bare, part| bare + part.split_once("*/").unwrap().1)
}

/// All sources of the library.
fn sources() -> String {
    fn collect(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(&path, text),
                false => text.push_str(&std::fs::read_to_string(path).unwrap()),
            }
        }
    }
    let mut text = String::new();
    collect(&here("src"), &mut text);
    text
}

/// Words with one blank between two.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The types of a function: what it returns, and its parameters.
type Types = Vec<String>;

/// The functions of the header.
fn declared() -> BTreeMap<String, Types> {
    let mut found = BTreeMap::new();
    for statement in bare_header().split(';') {
        // Behind the lines of the preprocessor.
        let lines = statement.lines().filter(|line| !line.starts_with('#') && !line.starts_with("extern"));
        let statement = words(&lines.collect::<Vec<_>>().join(" "));
        let Some((before, parameters)) = statement.strip_suffix(')').and_then(|text| text.split_once('('))
        else {
            continue;
        };
        if before.starts_with("typedef") {
            continue;
        }
        let at = before.rfind([' ', '*']).unwrap() + 1;
        let (returns, name) = before.split_at(at);
        let mut types = vec![returns.trim().to_owned()];
        for parameter in parameters.split(", ").filter(|text| *text != "void") {
            let at = parameter.rfind([' ', '*']).unwrap() + 1;
            types.push(parameter[..at].trim().to_owned());
        }
        found.insert(name.to_owned(), types);
    }
    found
}

/// A type of Rust in C.
fn in_c(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*const *mut ") {
        return format!("{} *const *", in_c(target));
    }
    if let Some(target) = rust.strip_prefix("*mut *mut ") {
        return format!("{} **", in_c(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", in_c(target));
    }
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", in_c(target));
    }
    let name = match rust {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "usize" => "size_t",
        "libc::sockaddr" => "struct sockaddr",
        "libc::socklen_t" => "socklen_t",
        "libc::addrinfo" => "struct addrinfo",
        "libc::pollfd" => "struct pollfd",
        "ff_outcome" | "ff_host" | "ff_client_options" | "ff_start_options" | "ff_server_options" => {
            return format!("struct {rust}");
        }
        "ff_client" | "ff_conn" | "ff_server" | "ff_log" => rust,
        other => panic!("no type of C for {other}"),
    };
    name.to_owned()
}

/// The functions of the sources, with types of C.
fn defined() -> BTreeMap<String, Types> {
    let text = words(&sources());
    let mut found = BTreeMap::new();
    for part in text.split("extern \"C\" fn ").skip(1).filter(|part| part.starts_with("ff_")) {
        let (name, rest) = part.split_once('(').unwrap();
        let (parameters, rest) = rest.split_once(')').unwrap();
        let returns = match rest.split_once('{').unwrap().0.trim().strip_prefix("-> ") {
            Some(returns) => in_c(returns),
            None => "void".to_owned(),
        };
        let mut types = vec![returns];
        let parameters = parameters.split(',').map(str::trim).filter(|text| !text.is_empty());
        types.extend(parameters.map(|text| in_c(text.split_once(": ").unwrap().1)));
        found.insert(name.to_owned(), types);
    }
    found
}

#[test]
fn each_function_is_declared_with_its_types() {
    let (declared, defined) = (declared(), defined());
    assert!(declared.len() >= 20, "{}", declared.len());
    assert_eq!(declared, defined);
}

#[test]
fn each_function_has_a_comment_and_a_place_in_the_guide() {
    let text = header();
    let lines: Vec<&str> = text.lines().collect();
    for name in declared().keys() {
        let is_here = |line: &&str| line.contains(&format!("{name}(")) && !line.starts_with([' ', '/']);
        let at = lines.iter().position(is_here).unwrap_or_else(|| panic!("{name}"));
        assert!(lines[at - 1].trim_end().ends_with("*/"), "{name} has no comment above it");
    }
    // The guide is not a part of the package.
    let guide = here("../../docs/from-c.md");
    if let Ok(guide) = std::fs::read_to_string(&guide) {
        for name in declared().keys() {
            assert!(guide.contains(&format!("`{name}`")), "{name} is not in the guide");
        }
    }
}

#[test]
fn each_number_is_the_librarys() {
    let numbers = |text: &str, prefix: &str, middle: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(prefix));
        let lines = lines.filter(|line| line.starts_with("FF_"));
        let pairs = lines.filter_map(|line| {
            let (name, rest) = line.split_once(middle)?;
            let value = rest.split_once('=').map_or(rest, |(_, value)| value);
            Some((name.trim().to_owned(), value.split_whitespace().next()?.trim_end_matches(';').to_owned()))
        });
        pairs.collect()
    };
    let declared = numbers(&header(), "#define ", " ");
    let defined = numbers(&sources(), "pub const ", ":");
    assert!(declared.len() >= 60);
    assert_eq!(declared, defined);
}

#[test]
fn each_structure_has_the_same_layout() {
    let mut program = "#include <firstflight.h>\n".to_owned();
    let mut number = 0;
    let mut check = |condition: String| {
        number += 1;
        writeln!(program, "typedef char check_{number}[({condition}) ? 1 : -1];").unwrap();
    };
    macro_rules! all {
        ($($name:ident: $($member:ident)*;)*) => {
            $(
                check(format!("sizeof(struct {}) == {}", stringify!($name), size_of::<$name>()));
                $(check(format!(
                    "offsetof(struct {}, {}) == {}",
                    stringify!($name), stringify!($member), offset_of!($name, $member)
                ));)*
            )*
        };
    }
    all! {
        ff_outcome: size outcome reason accepted confirmed early_bytes rtt_us rttvar_us retransmissions;
        ff_host: size client server without_cookie blackhole_secs;
        ff_client_options: size network plain reserved;
    }
    #[cfg(feature = "runtime")]
    all! {
        ff_start_options: size memory verifier verifier_key certificates servers plain servers_run_once;
        ff_server_options: size addresses keys keys_len trust names queue udp_port safety reserved;
    }
    for (compiler, arguments) in [("cc", ["-std=c99", "-xc"]), ("c++", ["-std=c++11", "-xc++"])] {
        if !has(compiler) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("layout");
        std::fs::write(&source, format!("{program}int main(void) {{ return 0; }}\n")).unwrap();
        let mut command = Command::new(compiler);
        command.args(arguments).args(["-Wall", "-Wextra", "-Werror", "-pedantic"]);
        succeed(command.arg("-I").arg(here("include")).arg("-fsyntax-only").arg(&source));
    }
}

#[test]
fn the_shared_library_has_these_names_only_and_its_soname() {
    let library = built("libfirstflight_capi.so");
    if has("nm") {
        let output = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
        let text = String::from_utf8(output.stdout).unwrap();
        let names: BTreeSet<String> =
            text.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect();
        let of_runtime = |name: &str| name == "ff_client_start" || name.starts_with("ff_server_");
        let all = declared().into_keys();
        let expected = all.filter(|name| cfg!(feature = "runtime") || !of_runtime(name)).collect();
        assert_eq!(names, expected);
    }
    if has("readelf") {
        let output = succeed(Command::new("readelf").arg("-d").arg(&library));
        assert!(String::from_utf8(output.stdout).unwrap().contains("[libfirstflight.so.0]"));
    }
}
