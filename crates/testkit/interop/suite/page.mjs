export function write() {}
export function check() {}
