// Liveness, copying and the theme. Every page works without this file: it only fetches pages anew when the server says that something
// changed, and never writes what it was sent into a page itself.
"use strict";

(() => {
  const REFRESH_MS = 2000; // At most one refresh per so long
  const BUSY_MS = 3000; // While something on the page makes progress
  const AGES_MS = 60000; // Ages on the page grow
  const POLL_MS = 15000; // Without a stream

  const main = () => document.getElementById("main");
  const mode = () => main()?.dataset.live ?? "never";

  // What a person opened or loaded stays as it is when the page around it is replaced.
  if (window.Idiomorph) {
    const callbacks = Idiomorph.defaults.callbacks;
    callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
    callbacks.beforeNodeMorphed = (old) => !(old instanceof Element && old.hasAttribute("data-keep"));
    Idiomorph.defaults.ignoreActiveValue = true;
  }

  // --- Refreshing ---

  let timer = 0;
  let last = Date.now();
  let missed = false;

  // A form that somebody has begun to fill in is not taken away from them.
  const typing = () =>
    [...(main()?.querySelectorAll("input, select") ?? [])].some((field) =>
      field.tagName === "SELECT"
        ? [...field.options].some((option) => option.selected !== option.defaultSelected && option.value !== "")
        : field.type !== "hidden" && field.value !== field.defaultValue,
    );

  const refresh = () => {
    timer = 0;
    missed = document.hidden || typing();
    if (missed || mode() === "never" || !window.htmx) return;
    last = Date.now();
    htmx.trigger(main(), "muster:changed");
  };

  const soon = () => {
    timer ||= setTimeout(refresh, Math.max(0, last + REFRESH_MS - Date.now()));
  };

  const shows = (nodes) => Object.keys(nodes).some((id) => main()?.querySelector(`[data-node="${CSS.escape(id)}"]`));

  const changed = (nodes) => {
    if (mode() === "any" || (mode() === "shown" && shows(nodes))) soon();
  };

  // --- The stream ---

  const mark = document.getElementById("live-mark");
  const say = (state, text) => {
    if (!mark || mark.dataset.state === state) return;
    mark.dataset.state = state;
    mark.textContent = text;
    mark.hidden = false;
  };

  let polling = 0;
  const poll = (on) => {
    if (on && !polling) polling = setInterval(soon, POLL_MS);
    if (!on && polling) {
      clearInterval(polling);
      polling = 0;
    }
  };

  const follow = () => {
    const stream = new EventSource("/ui/events");
    stream.addEventListener("hello", () => {
      if (mark?.dataset.state === "lost") soon();
      say("live", "live");
      poll(false);
    });
    stream.addEventListener("changed", (message) => {
      try {
        changed(JSON.parse(message.data).nodes ?? {});
      } catch {
        soon();
      }
    });
    stream.onerror = () => {
      say("lost", "reconnecting");
      poll(true);
      // The browser gives up for good when the answer is no stream: signed out, or the server is away behind a proxy.
      if (stream.readyState === EventSource.CLOSED) setTimeout(follow, POLL_MS);
    };
    addEventListener("pagehide", () => stream.close(), { once: true });
  };

  if ("signedIn" in document.body.dataset && mode() !== "never") {
    if (window.EventSource) follow();
    else poll(true);
    setInterval(() => main()?.querySelector("[data-busy]") && soon(), BUSY_MS);
    setInterval(soon, AGES_MS);
    document.addEventListener("visibilitychange", () => !document.hidden && missed && soon());
  }

  // A log that is followed stays at its end, unless somebody scrolled up to read.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const lines = event.target.closest?.(".lines");
    if (lines) lines.dataset.end = String(lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40);
  });
  document.addEventListener("htmx:afterSettle", () => {
    for (const lines of document.querySelectorAll('.lines[data-end="true"]')) lines.scrollTop = lines.scrollHeight;
    arm();
  });

  // --- Copying, searching, the theme ---

  const arm = () => {
    for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = !navigator.clipboard;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });

  document.addEventListener("keydown", (event) => {
    const inField = event.target.matches?.("input, select, textarea");
    if ((event.key === "/" && !inField && !event.ctrlKey && !event.metaKey) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
      const search = document.getElementById("search");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  const theme = document.getElementById("theme");
  const NEXT = { auto: "dark", dark: "light", light: "auto" };
  const label = () => {
    theme.textContent = `Theme: ${document.documentElement.dataset.theme}`;
    theme.hidden = false;
  };
  if (theme) {
    label();
    theme.addEventListener("click", () => {
      const next = NEXT[document.documentElement.dataset.theme] ?? "auto";
      document.documentElement.dataset.theme = next;
      document.cookie = `muster_theme=${next}; path=/; max-age=31536000; samesite=lax`;
      label();
    });
  }

  arm();
})();
