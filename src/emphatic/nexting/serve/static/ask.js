// The field to ask a question in one line, and the answers.
"use strict";
(() => {
  const section = document.getElementById("asked"), form = document.getElementById("ask");
  const field = document.getElementById("question"), list = document.getElementById("answers");
  const problem = document.getElementById("problem"), button = form.querySelector("button");
  let changes = 0; // an answer to what was asked before the last change is out of date

  function show(questions) {
    section.hidden = false;
    list.replaceChildren(...questions.map((question) => {
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
    const body = JSON.stringify({ ask: text });
    changes += 1;
    try {
      const answer = await fetch("ask", { method, headers: { "content-type": "application/json" }, body });
      const said = await answer.json();
      problem.textContent = answer.ok ? "" : said.error;
      problem.hidden = answer.ok;
      if (answer.ok) show(said);
      return answer.ok;
    } catch { return false; } // not there; the page says so
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = field.value;
    if (!asked.trim() || button.disabled) return;
    button.disabled = true; // an answer may take a while: it is asked once
    if (await send("POST", asked) && field.value === asked) field.value = "";
    button.disabled = false;
  });

  // What is wrong with a question stays there while the answers of the others go on.
  async function refresh() {
    try {
      if (!document.hidden && !button.disabled) {
        const before = changes, answer = await fetch("ask"), questions = await answer.json();
        if (answer.ok && changes === before) show(questions);
      }
    } catch { } // not there; the page says so
    setTimeout(refresh, 3000);
  }
  refresh();
})();
