// A text file in, by button or dropped on the page; the translation out as a file.

// The page shows texts; what is larger is work for the command line.
const MOST_BYTES = 4_000_000;

export class Files {
  /** `read(text)`: a file was opened; `failed(sentence)`: it cannot be. */
  constructor({ read, failed }) {
    Object.assign(this, { read, failed, name: "" });
    const input = document.getElementById("file");
    document.getElementById("open-file").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length > 0) this.open(input.files[0]);
      input.value = "";
    });
    this.#takeDrops(document.getElementById("drop"));
  }

  async open(file) {
    if (file.size > MOST_BYTES) {
      this.failed(`${file.name} is too large for this page; use the command tandem translate.`);
      return;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError("binary");
      this.name = file.name;
      this.read(text.replace(/\r\n?/g, "\n"));
    } catch {
      this.failed(`${file.name} is not a text file in UTF-8.`);
    }
  }

  /** Offers the translation as a file, named after the one that was opened. */
  save(text, language) {
    const stem = this.name.replace(/\.[^.]*$/, "") || "translation";
    const ending = this.name.includes(".") ? this.name.slice(this.name.lastIndexOf(".")) : ".txt";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
    link.download = `${stem}.${language}${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  #takeDrops(veil) {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      veil.hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) veil.hidden = true;
    });
    addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      veil.hidden = true;
      if (event.dataTransfer.files.length > 0) this.open(event.dataTransfer.files[0]);
    });
  }
}
