// Records in this browser's IndexedDB, by their id.

const STORE = "conversations";
let database = null;

function open() {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("moracle", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return database;
}

// The request's result, once the browser has it for good.
async function run(mode, work) {
  const transaction = (await open()).transaction(STORE, mode);
  const request = work(transaction.objectStore(STORE));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  return request.result;
}

export const loadAll = () => run("readonly", (records) => records.getAll());
export const put = (record) => run("readwrite", (records) => records.put(record));
export const remove = (id) => run("readwrite", (records) => records.delete(id));
export const removeAll = () => run("readwrite", (records) => records.clear());
