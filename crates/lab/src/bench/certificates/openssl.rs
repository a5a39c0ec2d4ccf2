//! RSA-1024, as in the thesis, measured with the machine's `openssl speed`.

use std::io;
use std::process::Command;

/// The measurements, operations per second, one value for each round.
#[derive(Debug, Default)]
pub struct Rsa {
    /// Name and version of openssl.
    pub version: String,
    /// Signatures made.
    pub sign: Vec<f64>,
    /// Signatures verified.
    pub verify: Vec<f64>,
}

/// Looks for openssl.
/// Errors: a sentence that says why it cannot be used.
pub fn find() -> Result<Rsa, String> {
    let version = say(&["version"])?;
    // The text in parentheses is about the library.
    let version = version.split('(').next().unwrap_or_default().trim().to_owned();
    Ok(Rsa { version, ..Rsa::default() })
}

impl Rsa {
    /// Measures for one second each, in CPU time.
    /// Errors: if openssl failed or its output has an unexpected form.
    pub fn measure(&mut self) -> Result<(), String> {
        let text = say(&["speed", "-mr", "-seconds", "1", "rsa1024"])?;
        let (sign, verify) = read(&text).ok_or("`openssl speed -mr rsa1024` says nothing of RSA-1024")?;
        self.sign.push(sign);
        self.verify.push(verify);
        Ok(())
    }
}

fn say(arguments: &[&str]) -> Result<String, String> {
    match Command::new("openssl").args(arguments).output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(format!("`openssl {}` failed: {}", arguments.join(" "), output.status)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("there is no `openssl` on this machine".to_owned())
        }
        Err(error) => Err(format!("`openssl` cannot be run: {error}")),
    }
}

/// Parses the line `+F2:…:1024:signatures a second:verifications a second`. Later versions append more values.
pub fn read(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("+F2:"))?;
    let mut fields = line.split(':').skip(1);
    if fields.next()? != "1024" {
        return None;
    }
    let mut number = || fields.next()?.trim().parse().ok().filter(|rate: &f64| *rate > 0.0);
    Some((number()?, number()?))
}
