//! The report.

use super::server::Credential;
use super::{BATCH, Results, Row, VerifiedBefore};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use firstflight_wire::asap::{BLOCK_LEN, CERTIFICATE_LEN};
use serde_json::json;

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
/// A measurement: its name in JSON and in the text.
type Line = (Row, &'static str, &'static str);

const LINES: [Line; 12] = [
    (Row::Issue, "issued", "certificates issued"),
    (Row::Sign, "client_sign", "requests signed by a client"),
    (CACHED, "verified_cached_single", "verified, seen before, one by one"),
    (CACHED_BATCH, "verified_cached_batch", "verified, seen before, together"),
    (NEW, "verified_new_single", "verified, new, one by one"),
    (NEW_BATCH, "verified_new_batch", "verified, new, together"),
    (
        accept(Credential::Certificate(VerifiedBefore::Cached), 1),
        "accepted_cached_single",
        "accepted, seen before, one by one",
    ),
    (
        accept(Credential::Certificate(VerifiedBefore::Cached), BATCH),
        "accepted_cached_batch",
        "accepted, seen before, together",
    ),
    (
        accept(Credential::Certificate(VerifiedBefore::New), 1),
        "accepted_new_single",
        "accepted, new, one by one",
    ),
    (
        accept(Credential::Certificate(VerifiedBefore::New), BATCH),
        "accepted_new_batch",
        "accepted, new, together",
    ),
    (accept(Credential::Cookie, 1), "accepted_cookie_single", "accepted, Fast Open cookie, one by one"),
    (accept(Credential::Cookie, BATCH), "accepted_cookie_batch", "accepted, Fast Open cookie, bursts"),
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

const COLUMNS: [Column<Results, Line>; 6] = [
    Column::text("one core", |_, (_, _, text)| (*text).into()),
    Column::json("row", |_, (_, name, _)| (*name).into()),
    Column::new("a second", "per_s", |results, (row, ..)| Cell::Range(results.figure(*row), 0)),
    Column::new("µs each", "us", |results, (row, ..)| (1e6 / results.median(*row)).into()),
    Column::new("of RSA-1024", "ratio_to_rsa1024", |results, (row, ..)| results.to_rsa(*row).into()),
    Column::new("signatures of it", "rsa1024_signatures", |results, (row, ..)| {
        results.rsa().and(rsa_signatures(*row)).map(|count| Cell::Number(count, 0)).into()
    }),
];

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

    /// Our rate, divided by that of the same number of RSA signatures, made or verified.
    fn to_rsa(&self, row: Row) -> Option<f64> {
        let (sign, verify) = self.rsa()?;
        let theirs = if row == Row::Issue { sign } else { verify / rsa_signatures(row)? };
        Some(self.median(row) / theirs)
    }
}

/// Median (minimum to maximum) a second, microseconds for each, and ratios. Without openssl there are no figures of RSA, and
/// `rsa_missing` says why.
pub fn report(results: &Results) -> Report {
    let mut facts = json!({
        "bench": "certificates", "quick": results.quick, "rounds": results.rounds, "batch": BATCH,
        "certificate_bytes": CERTIFICATE_LEN, "request_bytes": REQUEST_LEN, "block_bytes": BLOCK_LEN,
    });
    match (&results.rsa, results.rsa()) {
        (Ok(rsa), Some((sign, verify))) => {
            facts["openssl"] = json!(rsa.version);
            facts["rsa1024_sign_per_s"] = json!(sign.round());
            facts["rsa1024_verify_per_s"] = json!(verify.round());
        }
        (Err(why), _) => facts["rsa_missing"] = json!(why),
        _ => {}
    }
    let title = format!("{} rounds in turn, median (least–most), CPU time of the one thread", results.rounds);
    Report::new(facts).table("rows", Table::of(title, &COLUMNS, results, &LINES)).note(notes(results))
}

fn notes(results: &Results) -> String {
    let gain = |row, base| results.median(row) / results.median(base);
    let rsa = match (&results.rsa, results.rsa()) {
        (Ok(rsa), Some((sign, verify))) => format!(
            "RSA-1024: `openssl speed rsa1024` in turn with ours, {}: {sign:.0} signatures made and {verify:.0} verified a second. \
             What is issued is compared with signatures made, the rest with as many verified: in the thesis a verifier makes one \
             signature, a server verifies that one and, with RSA-512, the request's.",
            rsa.version
        ),
        (Err(why), _) => format!("RSA-1024 is left out: {why}."),
        _ => String::new(),
    };
    format!(
        "Verified: signatures only. Accepted: SYN in, SYN-ACK and early data out. Together: bursts of {BATCH}.\nA batch \
         against one by one: {:.2} × (seen before), {:.2} × (new). The whole stack against its \
         signatures: {:.2} × (seen before, together).\nA certificate has {CERTIFICATE_LEN} B, a request \
         {REQUEST_LEN} B, the block in the SYN {BLOCK_LEN} B.\n{rsa}\nThe thesis' own figures, on its machines: issued in less \
         than {THESIS_ISSUE_MS} ms (more than 95 %), verified in {THESIS_VERIFY_MS} ms (median).",
        gain(CACHED_BATCH, CACHED),
        gain(NEW_BATCH, NEW),
        gain(accept(Credential::Certificate(VerifiedBefore::Cached), BATCH), CACHED_BATCH),
    )
}
