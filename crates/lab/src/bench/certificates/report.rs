//! The measurements, as text and as JSON.

use super::server::Credential;
use super::{BATCH, Results, Row, VerifiedBefore};
use crate::figure::{Figure, rounded};
use firstflight_wire::asap::{BLOCK_LEN, CERTIFICATE_LEN};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Length of the client's part of a block: stamp, request id and signature, bytes.
const REQUEST_LEN: usize = 6 + 8 + 64;
/// The thesis' own figures on its machines (§7.3): 95 % of certificate requests were answered within 0.8 ms; the
/// median time to verify a request was 0.326 ms.
const THESIS_ISSUE_MS: f64 = 0.8;
const THESIS_VERIFY_MS: f64 = 0.326;

const CACHED: Row = Row::Verify(VerifiedBefore::Cached, 1);
const CACHED_BATCH: Row = Row::Verify(VerifiedBefore::Cached, BATCH);
const NEW: Row = Row::Verify(VerifiedBefore::New, 1);
const NEW_BATCH: Row = Row::Verify(VerifiedBefore::New, BATCH);
const ACCEPT: [(Row, &str, &str); 6] = [
    (accept(Credential::Certificate(VerifiedBefore::Cached), 1), "cached_single", "seen before, one by one"),
    (accept(Credential::Certificate(VerifiedBefore::Cached), BATCH), "cached_batch", "seen before, together"),
    (accept(Credential::Certificate(VerifiedBefore::New), 1), "new_single", "new, one by one"),
    (accept(Credential::Certificate(VerifiedBefore::New), BATCH), "new_batch", "new, together"),
    (accept(Credential::Cookie, 1), "cookie_single", "Fast Open cookie, one by one"),
    (accept(Credential::Cookie, BATCH), "cookie_batch", "Fast Open cookie, bursts"),
];
const VERIFY: [(Row, &str, &str); 4] = [
    (CACHED, "cached_single", "seen before, one by one"),
    (CACHED_BATCH, "cached_batch", "seen before, together"),
    (NEW, "new_single", "new, one by one"),
    (NEW_BATCH, "new_batch", "new, together"),
];

const fn accept(credential: Credential, burst: usize) -> Row {
    Row::Accept(credential, burst)
}

/// Number of RSA signatures of a request in the thesis: certificate and request, or only the request. The thesis
/// signs requests with RSA-512 (§4.5); this comparison uses RSA-1024 for both.
fn rsa_signatures(row: Row) -> Option<f64> {
    match row {
        Row::Verify(VerifiedBefore::Cached, _)
        | Row::Accept(Credential::Certificate(VerifiedBefore::Cached), _) => Some(1.0),
        Row::Verify(VerifiedBefore::New, _)
        | Row::Accept(Credential::Certificate(VerifiedBefore::New), _) => Some(2.0),
        _ => None,
    }
}

impl Results {
    fn figure(&self, row: Row) -> Figure {
        Figure::new(self.rates(row).to_vec())
    }

    fn median(&self, row: Row) -> f64 {
        self.figure(row).median()
    }

    /// Medians of RSA signatures made and verified per second.
    fn rsa(&self) -> Option<(f64, f64)> {
        let rsa = self.rsa.as_ref().ok()?;
        Some((Figure::new(rsa.sign.clone()).median(), Figure::new(rsa.verify.clone()).median()))
    }

    /// Our rate, divided by the rate of the same number of RSA verifications.
    fn to_rsa(&self, row: Row) -> Option<f64> {
        let (_, verify) = self.rsa()?;
        Some(self.median(row) / (verify / rsa_signatures(row)?))
    }
}

fn ratio(value: f64) -> f64 {
    rounded(value, 3)
}

/// One JSON object. Without openssl it has no RSA figures, and `rsa_missing` says why.
pub fn json(results: &Results) -> String {
    let mut object = Map::new();
    let mut put = |name: String, value: Value| {
        object.insert(name, value);
    };
    put("bench".into(), json!("certificates"));
    put("quick".into(), json!(results.quick));
    put("rounds".into(), json!(results.rounds));
    put("batch".into(), json!(BATCH));
    put("issued_per_s".into(), json!(results.median(Row::Issue).round()));
    put("issue_us".into(), json!(rounded(1e6 / results.median(Row::Issue), 2)));
    put("client_sign_us".into(), json!(rounded(1e6 / results.median(Row::Sign), 2)));
    for (group, rows) in [("verified", &VERIFY[..]), ("accepted", &ACCEPT[..])] {
        for (row, name, _) in rows {
            put(format!("{group}_{name}_per_s"), json!(results.median(*row).round()));
            put(format!("{group}_{name}_us"), json!(rounded(1e6 / results.median(*row), 2)));
            put(format!("{group}_{name}_all_rounds"), json!(results.rates(*row)));
            if let Some(to_rsa) = results.to_rsa(*row) {
                put(format!("ratio_{group}_{name}_to_rsa1024"), json!(ratio(to_rsa)));
            }
        }
    }
    match (&results.rsa, results.rsa()) {
        (Ok(rsa), Some((sign, verify))) => {
            put("openssl".into(), json!(rsa.version));
            put("rsa1024_sign_per_s".into(), json!(sign.round()));
            put("rsa1024_verify_per_s".into(), json!(verify.round()));
            put("ratio_issued_to_rsa1024_sign".into(), json!(ratio(results.median(Row::Issue) / sign)));
        }
        (Err(why), _) => put("rsa_missing".into(), json!(why)),
        _ => {}
    }
    put("certificate_bytes".into(), json!(CERTIFICATE_LEN));
    put("request_bytes".into(), json!(REQUEST_LEN));
    put("block_bytes".into(), json!(BLOCK_LEN));
    Value::Object(object).to_string()
}

/// A table: median (minimum to maximum) per second, microseconds for each, and ratios.
pub fn table(results: &Results) -> String {
    let mut out = format!("{:<40} {:>32} {:>9}  ratio\n", "one core", "a second", "µs each");
    let mut line = |what: &str, figure: &Figure, ratio: &str| {
        let value = figure.spread(0);
        let each = 1e6 / figure.median();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", format!("{what:<40} {value:>32} {each:>9.2}  {ratio}").trim_end());
    };
    let issue = results.figure(Row::Issue);
    let to_sign = results.rsa().map(|(sign, _)| format!("{:.2} × RSA-1024", issue.median() / sign));
    line("certificates issued", &issue, &to_sign.unwrap_or_default());
    line("requests signed by a client", &results.figure(Row::Sign), "");
    for (title, rows) in [("verified", &VERIFY[..]), ("accepted", &ACCEPT[..])] {
        line_of(title, &mut line, results, rows);
    }
    if let Ok(rsa) = &results.rsa {
        line("RSA-1024 signatures made", &Figure::new(rsa.sign.clone()), "");
        line("RSA-1024 signatures verified", &Figure::new(rsa.verify.clone()), "");
    }
    notes(results, &mut out);
    out.truncate(out.trim_end().len());
    out
}

fn line_of(
    title: &str,
    line: &mut impl FnMut(&str, &Figure, &str),
    results: &Results,
    rows: &[(Row, &str, &str)],
) {
    for (row, _, what) in rows {
        let to_rsa = results.to_rsa(*row).map(|ratio| {
            let two = if rsa_signatures(*row) == Some(2.0) { "two " } else { "" };
            format!("{ratio:.2} × {two}RSA-1024")
        });
        line(&format!("{title}, {what}"), &results.figure(*row), &to_rsa.unwrap_or_default());
    }
}

fn notes(results: &Results, out: &mut String) {
    let gain = |row, base| results.median(row) / results.median(base);
    let stack = ACCEPT[1].0;
    let _ = writeln!(
        out,
        "Verified: signatures only. Accepted: SYN in, SYN-ACK and early data out. Together: bursts of {BATCH}.\nA batch \
         against one by one: {:.2} × (seen before), {:.2} × (new). The whole stack against its \
         signatures: {:.2} × (seen before, together).\nA certificate has {CERTIFICATE_LEN} B, a request \
         {REQUEST_LEN} B, the block in the SYN {BLOCK_LEN} B.",
        gain(CACHED_BATCH, CACHED),
        gain(NEW_BATCH, NEW),
        gain(stack, CACHED_BATCH),
    );
    let _ = match &results.rsa {
        Ok(rsa) => writeln!(
            out,
            "RSA-1024: `openssl speed rsa1024` in turn with ours, {}; in the thesis a verifier makes one signature, \
             a server verifies that one and, with RSA-512, the request's.",
            rsa.version
        ),
        Err(why) => writeln!(out, "RSA-1024 is left out: {why}."),
    };
    let _ = writeln!(
        out,
        "The thesis' own figures, on its machines: issued in less than {THESIS_ISSUE_MS} ms (more than 95 %), verified in \
         {THESIS_VERIFY_MS} ms (median).\n{} rounds in turn, median (least–most), CPU time of the one thread.",
        results.rounds
    );
}
