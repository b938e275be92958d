// The ensemble: which servers serve, how many may be lost, and who is connected.

import { count, empty, figures, grid, h, many, replace, seconds, section } from "./dom.js";
import { messagesList } from "./overview.js";

const SYNC = { true: "yes", false: "no", null: "unknown" };

export function ensemblePage(context) {
  const element = h("div");
  return {
    title: "Ensemble",
    element,
    update() {
      const { coordinator, messages, tables } = context.status;
      const spare = coordinator.may_stop_before_commits_do;
      const disks = coordinator.may_be_lost_before_data_are;
      const ofTables = new Set(tables.map((table) => table.location));
      const about = messages.filter((each) => !ofTables.has(each.where));
      const releases = Object.entries(coordinator.clients || {});
      replace(element,
        h("h1", { class: coordinator.trouble ? "wrong" : "" }, coordinator.trouble ? "The coordinator does not answer" : "The ensemble"),
        h("p", { class: "muted" }, coordinator.address),
        figures([
          ["A write takes", coordinator.write_s === null ? "no write goes through" : seconds(coordinator.write_s), coordinator.write_s === null ? "wrong" : ""],
          ["May stop before commits do", spare === null ? "unknown" : many(spare, "server")],
          ["May lose their disks before data are lost", disks === null ? "unknown" : many(disks, "server")],
        ]),
        about.length ? section("What to do", messagesList(about)) : null,
        section("Servers", coordinator.servers.length
          ? grid([
            { title: "Server", cell: (each) => each.host },
            { title: "State", cell: (each) => h("span", { class: ["away", "not serving"].includes(each.state) ? "mark" : "" }, each.state) },
            { title: "In sync", cell: (each) => SYNC[String(each.in_sync)] },
            { title: "Last transaction", number: true, cell: (each) => (each.zxid < 0 ? "–" : `0x${each.zxid.toString(16)}`) },
          ], coordinator.servers, "Servers of the ensemble")
          : empty("This coordinator has no servers of its own to show.")),
        section("Clients", releases.length
          ? grid([
            { title: "Release of sluice", cell: ([release]) => release },
            { title: "Clients", number: true, cell: ([, clients]) => count(clients) },
          ], releases, "Connected clients by their release")
          : empty("No client is connected.")));
    },
  };
}
