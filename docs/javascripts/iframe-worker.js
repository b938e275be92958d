// Browsers start no Web Worker from file://, and the site's search is one. Opened from the disk, a hidden frame runs its script instead.
// The theme looks for this name, and for the script's element, when it resolves paths beside the worker.
if (location.protocol === "file:") {
  window.IFrameWorker = class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.worker = this
      document.body.append(frame)
      this.frame = frame
      this.loaded = new Promise((done) => frame.addEventListener("load", done, { once: true }))
      frame.contentDocument.open()
      frame.contentDocument.write(
        `<script>postMessage = (data) => frameElement.worker.dispatchEvent(new MessageEvent("message", { data }))</script>` +
          `<script src="${new URL(url, location)}"></script>`,
      )
      frame.contentDocument.close()
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
