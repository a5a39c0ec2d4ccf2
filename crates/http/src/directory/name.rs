//! Which file the path of a URL names.

use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file for a path that names a directory.
pub(super) const INDEX: &str = "index.html";
/// The one name with a dot that is served: authorities ask for a file there before they certify a host (RFC 8615, RFC 8555
/// §8.3).
const WELL_KNOWN: &[u8] = b".well-known";

/// The path, below the root, of the file for the path of a URL. A path that ends with a slash names the index of a
/// directory. `hidden` allows names that begin with a dot.
/// Errors: 404 for names that no file has or that are hidden. 403 for `..`, before the disk is asked, so that clients
/// do not learn what exists outside.
pub(super) fn below_root(url_path: &str, hidden: bool) -> Result<PathBuf, StatusCode> {
    let decoded: Vec<u8> = percent_decode_str(url_path).collect();
    if decoded.contains(&0) {
        return Err(StatusCode::NOT_FOUND);
    }
    let mut path = PathBuf::new();
    let mut is_directory = true;
    for part in decoded.split(|byte| *byte == b'/') {
        is_directory = matches!(part, b"" | b".");
        match part {
            b"" | b"." => {}
            b".." => return Err(StatusCode::FORBIDDEN),
            part if !hidden && is_hidden_part(part, path == Path::new("")) => {
                return Err(StatusCode::NOT_FOUND);
            }
            name => path.push(OsStr::from_bytes(name)),
        }
    }
    if is_directory {
        path.push(INDEX);
    }
    Ok(path)
}

fn is_hidden_part(part: &[u8], is_first: bool) -> bool {
    part.starts_with(b".") && !(is_first && part == WELL_KNOWN)
}

/// Whether a path below the root has a hidden name.
pub(super) fn is_hidden(path: &Path) -> bool {
    path.iter().enumerate().any(|(nth, part)| is_hidden_part(part.as_bytes(), nth == 0))
}

/// The content type that browsers expect for a file of this name. Texts are taken for UTF-8.
pub(super) fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    match extension.as_deref() {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("xhtml") => "application/xhtml+xml; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs" | "cjs") => "text/javascript; charset=utf-8",
        Some("txt" | "text" | "md" | "log") => "text/plain; charset=utf-8",
        Some("csv") => "text/csv; charset=utf-8",
        Some("vtt") => "text/vtt; charset=utf-8",
        Some("ics") => "text/calendar; charset=utf-8",
        Some("xml" | "xsl") => "text/xml; charset=utf-8",
        Some("atom") => "application/atom+xml; charset=utf-8",
        Some("rss") => "application/rss+xml; charset=utf-8",
        // JSON is always UTF-8 (RFC 8259 §11).
        Some("json" | "map") => "application/json",
        Some("jsonld") => "application/ld+json",
        Some("webmanifest") => "application/manifest+json",
        Some("svg") => "image/svg+xml",
        Some("png" | "apng") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("avif") => "image/avif",
        Some("bmp") => "image/bmp",
        Some("ico") => "image/x-icon",
        Some("mp4" | "m4v") => "video/mp4",
        Some("webm") => "video/webm",
        Some("mov") => "video/quicktime",
        Some("ogv") => "video/ogg",
        Some("mp3") => "audio/mpeg",
        Some("m4a") => "audio/mp4",
        Some("ogg" | "oga" | "opus") => "audio/ogg",
        Some("wav") => "audio/wav",
        Some("flac") => "audio/flac",
        Some("woff") => "font/woff",
        Some("woff2") => "font/woff2",
        Some("ttf") => "font/ttf",
        Some("otf") => "font/otf",
        Some("pdf") => "application/pdf",
        Some("wasm") => "application/wasm",
        Some("zip") => "application/zip",
        Some("gz" | "tgz") => "application/gzip",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
