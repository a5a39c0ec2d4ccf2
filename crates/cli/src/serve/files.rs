//! Finds the file for a request and checks that it may be served.

use super::ServeError;
use crate::file_body::{FileBody, elsewhere};
use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory to serve, with links in its path resolved.
pub async fn root(path: &Path) -> Result<PathBuf, ServeError> {
    let fail = |error| ServeError::Root(path.to_owned(), error);
    let root = tokio::fs::canonicalize(path).await.map_err(fail)?;
    if !tokio::fs::metadata(&root).await.map_err(fail)?.is_dir() {
        return Err(ServeError::RootNotDirectory(path.to_owned()));
    }
    // The server does not list the directory, but a missing permission should be reported now.
    drop(tokio::fs::read_dir(&root).await.map_err(fail)?);
    Ok(root)
}

/// Opens the file for the path of a URL, and returns its content type.
///
/// # Errors
/// The status of the response: 403 outside the root or without permission to read, 404 if the file does not exist,
/// 500 if the disk fails.
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

/// Resolves links, and refuses to follow them out of the root.
fn resolve(root: &Path, path: &Path) -> Result<PathBuf, StatusCode> {
    let path = std::fs::canonicalize(path).map_err(|error| status(&error))?;
    if path.starts_with(root) { Ok(path) } else { Err(StatusCode::FORBIDDEN) }
}

/// The path relative to the root. A `..` is refused before the disk is accessed, so that clients do not learn what
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
        // InvalidInput: the path is a pipe, a socket or a device.
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
