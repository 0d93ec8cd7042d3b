package main

import goruntime "runtime"

// lockThread keeps main() on its thread: the library's last error belongs to a thread, and a step
// must always be counted by the same thread.
func lockThread() { goruntime.LockOSThread() }
