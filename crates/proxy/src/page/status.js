"use strict";
// Shows the snapshots that come as events. Everything from the network goes into text nodes.
const SVG = "http://www.w3.org/2000/svg";
const token = new URLSearchParams(location.search).get("token") || "";
const $ = (id) => document.getElementById(id);

const shape = (name, attributes, text) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

const bytes = (n) => {
  let unit = 0;
  while (n >= 1000 && unit < 4) { n /= 1000; unit += 1; }
  return `${unit ? n.toPrecision(3) : n} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
};
const ms = (n) => {
  if (n === null || n === undefined) return "";
  if (n >= 10000) return `${(n / 1000).toFixed(1)} s`;
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ms`;
};

// The height of a plot in milliseconds: one slow connection does not flatten the others.
const scale = (recent) => {
  const sorted = recent.map((one) => one.ms + one.later_ms + one.saved_ms).sort((a, b) => a - b);
  const most = sorted.length ? sorted[sorted.length - 1] : 1;
  const usual = sorted.length ? sorted[Math.floor((sorted.length - 1) * 0.8)] : 1;
  return Math.max(1, Math.min(most, usual * 1.25));
};

// Bars in a box of this size. A bar that is longer than `most` ends in a tip.
const bars = (recent, width, height, most) => {
  const step = width / Math.max(recent.length, 20);
  return recent.flatMap((one, n) => {
    const [x, wide] = [n * step, step * 0.8];
    let bar;
    if (one.ms > most) {
      const tip = Math.min(wide / 2, height / 3);
      const d = `M${x} ${height}V${tip}L${x + wide / 2} 0L${x + wide} ${tip}V${height}Z`;
      bar = shape("path", { class: one.outcome, d });
    } else {
      const tall = Math.max(1, (one.ms / most) * height);
      bar = shape("rect", { class: one.outcome, x, y: height - tall, width: wide, height: tall });
    }
    bar.append(shape("title", {}, `${ms(one.ms)}, ${one.outcome}`));
    // Above the bar: the round trip of the first bytes behind a handshake, or what was not waited for.
    const [extra, css, says] = one.later_ms ? [one.later_ms, "later", "until the first answer"] : [one.saved_ms, "ghost", "saved"];
    const high = Math.min((extra / most) * height, height - Math.min(height, (one.ms / most) * height));
    if (!(high > 0)) return [bar];
    const above = shape("rect", { class: css, x, y: height - (one.ms / most) * height - high, width: wide, height: high });
    above.append(shape("title", {}, `${ms(extra)} ${says}`));
    return [bar, above];
  });
};

const plot = (servers) => {
  const all = servers.flatMap((server) => server.recent).sort((a, b) => a.unix_ms - b.unix_ms).slice(-80);
  const most = scale(all);
  $("plot").replaceChildren(
    shape("line", { x1: 0, y1: 20.5, x2: 640, y2: 20.5, "stroke-dasharray": "2 4" }),
    shape("line", { x1: 0, y1: 140.5, x2: 640, y2: 140.5 }),
    shape("text", { x: 2, y: 14 }, ms(most)),
    shape("text", { x: 2, y: 156 }, "0 ms"),
  );
  const group = shape("g", { transform: "translate(0 20)" });
  group.append(...bars(all, 640, 120, most));
  $("plot").append(group);
};

const element = (name, text, css) => {
  const made = document.createElement(name);
  made.textContent = text;
  if (css) made.className = css;
  return made;
};

const row = (server) => {
  const last = server.last || {};
  const line = document.createElement("tr");
  const cell = (text, css) => {
    const td = element("td", text, css);
    line.append(td);
    return td;
  };
  const small = shape("svg", { viewBox: "0 0 120 18", role: "img", "aria-label": "times until the first answer" });
  small.append(...bars(server.recent, 120, 18, scale(server.recent)));
  const carried = element("small", `${bytes(server.sent)} sent, ${bytes(server.received)} received`);
  cell(server.server).append(carried, small);
  if (server.error) {
    // The last attempt failed, whatever came of the ones before.
    cell(`failed: ${server.error}`, "error").colSpan = 3;
  } else {
    const how = cell("");
    how.append(element("span", `${last.outcome || ""} by ${last.way || ""}`, last.outcome));
    if (last.early_yes) how.append(", early answer");
    if (last.reason) how.append(element("small", `${last.reason}: ${server.means || ""}`));
    const later = last.outcome === "accepted" ? 0 : last.rtt_ms || 0;
    cell(ms(last.connect_ms === undefined ? undefined : last.connect_ms + later), "number");
    cell(ms(last.rtt_ms), "number");
  }
  const counts = cell(`${server.accepted} of ${server.contacts}`, "number");
  const resets = server.resets ? ` (${server.resets} reset)` : "";
  if (server.failures) counts.append(element("small", `${server.failures} failed${resets}`));
  cell(server.round_trips_saved ? ms(server.saved_ms) : "0", "number");
  return line;
};

const verifier = (one) => {
  const forgotten = one.authentic ? "" : ", forgotten with the visit";
  const count = one.certificates === 1 ? "one certificate" : `${one.certificates} certificates`;
  return element("li", `${one.at} (${one.id}), for ${one.site}: named by ${one.named_by} ${one.age_s} s ago${forgotten}; ${count}`);
};

const show = (snapshot) => {
  const { total, servers, verifiers } = snapshot;
  $("found").hidden = !verifiers.length;
  $("verifiers").replaceChildren(...verifiers.map(verifier));
  $("saved").textContent = total.round_trips_saved
    ? `${ms(total.saved_ms)} saved, added up over ${total.round_trips_saved} round trips`
    : "Nothing saved yet: the first connection to a server asks for its cookie, later ones are faster if it grants one";
  $("total").textContent =
    `${total.contacts} connections, ${total.accepted} first flights accepted, ${total.early_yes} early answers, ` +
    `${total.failures} failed (${total.resets} of them reset).`;
  $("servers").replaceChildren(...servers.map(row));
  plot(servers);
};

const source = new EventSource(`/status/events?token=${encodeURIComponent(token)}`);
source.onopen = () => { $("state").textContent = "live"; };
source.onerror = () => { $("state").textContent = "no connection to the proxy; trying again …"; };
source.onmessage = (event) => show(JSON.parse(event.data));
