// What surrounds the text: colours and dialogs.

const THEMES = ["system", "light", "dark"];
const KEY = "tandem-theme";

/** The button that goes through the colours: the system's, light, dark. */
export function setUpColours() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const show = () => {
    button.textContent = `Colours: ${root.dataset.theme ?? "system"}`;
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, next);
    } catch {
      // Storage is forbidden: the choice holds until the page is left.
    }
    show();
  });
  show();
}

/** Dialogs close by their button, by Escape and by a click beside them. */
export function setUpDialogs() {
  const keys = document.getElementById("keys");
  document.getElementById("open-keys").addEventListener("click", () => keys.showModal());
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
  }
}
