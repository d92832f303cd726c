// The field to ask a question in one line, and the answers.
"use strict";
(() => {
  const section = document.getElementById("asked"), form = document.getElementById("ask");
  const field = document.getElementById("question"), list = document.getElementById("answers");
  const problem = document.getElementById("problem");

  function show(questions) {
    section.hidden = false;
    list.replaceChildren(...questions.filter((question) => !question.headline).map((question) => {
      const item = document.createElement("li"), words = document.createElement("span");
      const stop = document.createElement("button");
      const text = document.createElement("b"), known = document.createElement("small");
      text.textContent = question.text;
      known.textContent = question.learning ? ` (${question.learning})` : "";
      words.append(text, question.sentence, known);
      stop.type = "button";
      stop.textContent = "Stop asking";
      stop.addEventListener("click", () => send("DELETE", question.text));
      item.append(words, stop);
      return item;
    }));
  }

  async function send(method, text) {
    const body = text === undefined ? undefined : JSON.stringify({ ask: text });
    const headers = text === undefined ? {} : { "content-type": "application/json" };
    try {
      const answer = await fetch("ask", { method, headers, body });
      const said = await answer.json();
      problem.textContent = answer.ok ? "" : said.error;
      problem.hidden = answer.ok;
      if (answer.ok) show(said);
      return answer.ok;
    } catch { return false; } // not there; the page says so
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await send("POST", field.value)) field.value = "";
  });

  async function refresh() {
    if (!document.hidden && problem.hidden) await send("GET");
    setTimeout(refresh, 3000);
  }
  refresh();
})();
