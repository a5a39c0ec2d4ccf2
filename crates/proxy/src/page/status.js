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
const ms = (n) => (n === null || n === undefined ? "" : `${n < 10 ? n.toFixed(1) : Math.round(n)} ms`);

// Bars in a box of this size, the highest as high as the box.
const bars = (recent, width, height, most) => {
  const step = width / Math.max(recent.length, 20);
  return recent.map((one, n) => {
    const tall = Math.max(1, (one.ms / most) * height);
    const bar = shape("rect", { class: one.outcome, x: n * step, y: height - tall, width: step * 0.8, height: tall });
    bar.append(shape("title", {}, `${ms(one.ms)}, ${one.outcome}`));
    return bar;
  });
};

const plot = (servers) => {
  const all = servers.flatMap((server) => server.recent).sort((a, b) => a.unix_ms - b.unix_ms).slice(-80);
  const most = Math.max(1, ...all.map((one) => one.ms));
  const box = $("plot");
  box.replaceChildren(
    shape("line", { x1: 0, y1: 140.5, x2: 640, y2: 140.5 }),
    shape("text", { x: 2, y: 12 }, ms(most)),
    shape("text", { x: 2, y: 156 }, "0 ms"),
  );
  const group = shape("g", { transform: "translate(0 20)" });
  group.append(...bars(all, 640, 120, most));
  box.append(group);
};

const row = (server) => {
  const last = server.last || {};
  const line = document.createElement("tr");
  const cell = (text, number) => {
    const td = document.createElement("td");
    td.textContent = text === null || text === undefined ? "" : String(text);
    if (number) td.className = "number";
    line.append(td);
    return td;
  };
  cell(server.server).title = server.server;
  if (server.error) {
    // The last attempt failed, whatever came of the ones before.
    const error = cell(`failed: ${server.error}`);
    error.className = "error";
    error.colSpan = 6;
    error.title = server.error;
  } else {
    cell(last.way);
    cell(last.outcome);
    cell(last.reason);
    cell(last.early_yes === undefined ? "" : last.early_yes ? "yes" : "no");
    cell(ms(last.connect_ms), true);
    cell(ms(last.rtt_ms), true);
  }
  cell(`${server.accepted} of ${server.contacts}`, true);
  cell(server.round_trips_saved, true);
  cell(server.resets ? `${server.failures} (${server.resets} reset)` : server.failures, true);
  cell(bytes(server.sent), true);
  cell(bytes(server.received), true);
  const small = shape("svg", { viewBox: "0 0 120 18", role: "img", "aria-label": "connect times" });
  small.append(...bars(server.recent, 120, 18, Math.max(1, ...server.recent.map((one) => one.ms))));
  cell("").append(small);
  return line;
};

const show = (snapshot) => {
  const { total, servers } = snapshot;
  $("total").textContent =
    `${total.contacts} connections, ${total.accepted} first flights accepted, ${total.early_yes} early answers, ` +
    `${total.round_trips_saved} round trips saved, ${total.failures} failures (${total.resets} resets)`;
  $("servers").replaceChildren(...servers.map(row));
  plot(servers);
};

const source = new EventSource(`/status/events?token=${encodeURIComponent(token)}`);
source.onopen = () => { $("state").textContent = "live"; };
source.onerror = () => { $("state").textContent = "no connection to the proxy; trying again …"; };
source.onmessage = (event) => show(JSON.parse(event.data));
