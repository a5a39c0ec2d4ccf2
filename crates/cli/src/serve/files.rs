//! Which file a request is for, and that it is one to give away.

use crate::error::Error;
use crate::file_body::{FileBody, elsewhere};
use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory to serve, without links in its path.
pub async fn root(path: &Path) -> Result<PathBuf, Error> {
    let fail = |error| Error::Root(path.to_owned(), error);
    let root = tokio::fs::canonicalize(path).await.map_err(fail)?;
    if !tokio::fs::metadata(&root).await.map_err(fail)?.is_dir() {
        return Err(Error::RootNotDirectory(path.to_owned()));
    }
    // Its names need not be listed, but one who may not read it should know now.
    drop(tokio::fs::read_dir(&root).await.map_err(fail)?);
    Ok(root)
}

/// Opens the file for the path of a URL, and says what it is.
///
/// # Errors
/// The status to answer with: 403 outside the root and where reading is not permitted, 404 for what is
/// not there, 500 when the disk fails.
pub async fn open(root: &Arc<Path>, url_path: &str) -> Result<(FileBody, &'static str), StatusCode> {
    let wanted = root.join(relative(url_path)?);
    let root = Arc::clone(root);
    elsewhere(move || open_here(&root, &wanted)).await.map_err(|error| status(&error))?
}

fn open_here(root: &Path, wanted: &Path) -> Result<(FileBody, &'static str), StatusCode> {
    let mut path = resolve(root, wanted)?;
    if std::fs::metadata(&path).map_err(|error| status(&error))?.is_dir() {
        path = resolve(root, &path.join("index.html"))?;
    }
    let kind = content_type(&path);
    let body = FileBody::open_here(&path).map_err(|error| status(&error))?;
    Ok((body, kind))
}

/// Follows links, and refuses to follow them out of the root.
fn resolve(root: &Path, path: &Path) -> Result<PathBuf, StatusCode> {
    let path = std::fs::canonicalize(path).map_err(|error| status(&error))?;
    if path.starts_with(root) { Ok(path) } else { Err(StatusCode::FORBIDDEN) }
}

/// The path below the root. A `..` is refused before the disk is asked, so that nobody learns what
/// exists outside.
fn relative(url_path: &str) -> Result<PathBuf, StatusCode> {
    let decoded = percent_decode_str(url_path).decode_utf8().map_err(|_| StatusCode::NOT_FOUND)?;
    if decoded.contains('\0') {
        return Err(StatusCode::NOT_FOUND);
    }
    let mut path = PathBuf::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(StatusCode::FORBIDDEN),
            name => path.push(name),
        }
    }
    Ok(path)
}

fn status(error: &io::Error) -> StatusCode {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            StatusCode::NOT_FOUND
        }
        // InvalidInput: a pipe, a socket or a device.
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("pdf") => "application/pdf",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
