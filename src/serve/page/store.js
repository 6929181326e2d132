// Records in this browser's IndexedDB, by their id.

const STORE = "conversations";
let database = null;

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function open() {
  if (!database) {
    const request = indexedDB.open("moracle", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    database = settled(request);
  }
  return database;
}

async function run(mode, work) {
  return settled(work((await open()).transaction(STORE, mode).objectStore(STORE)));
}

export const loadAll = () => run("readonly", (records) => records.getAll());
export const put = (record) => run("readwrite", (records) => records.put(record));
export const remove = (id) => run("readwrite", (records) => records.delete(id));
export const removeAll = () => run("readwrite", (records) => records.clear());
