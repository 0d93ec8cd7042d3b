// The tutorial programs in Go, with the C library by cgo:
//
//	go build -o tutorial . && crun --standalone --nproc-per-node=4 ./tutorial all_reduce
//
// A program of your own needs only what stands before main().
package main

// #cgo pkg-config: crunrt
// #include <crunrt.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// check turns a result of the library into an error. The caller keeps its goroutine on one thread,
// because the text belongs to the thread that made the call; main() locks it for the whole program.
func check(rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return errors.New(C.GoString(C.crunrt_last_error()))
}

// A runtime, and a group that it has made.
type runtime struct{ at *C.crunrt }
type group struct{ at *C.crunrt_group }

func start() (runtime, error) {
	var rt runtime
	return rt, check(C.crunrt_init(nil, &rt.at))
}

func (rt runtime) rank() int { return int(C.crunrt_rank(rt.at)) }
func (rt runtime) size() int { return int(C.crunrt_world_size(rt.at)) }
func (rt runtime) close()    { C.crunrt_destroy(rt.at) }

func (rt runtime) add(key string, delta int64) (int64, error) {
	text := C.CString(key)
	defer C.free(unsafe.Pointer(text))
	var total C.int64_t
	rc := C.crunrt_store_add(C.crunrt_job_store(rt.at), text, C.int64_t(delta), &total)
	return int64(total), check(rc)
}

// group makes a group of the given ranks, or of all ranks if the list is nil. On a rank outside the
// list the group's pointer is nil. Memory that C keeps during the call is allocated by C.
func (rt runtime) group(name string, ranks []int) (group, error) {
	options := (*C.crunrt_group_options)(C.malloc(C.crunrt_group_options_size()))
	defer C.free(unsafe.Pointer(options))
	C.crunrt_group_options_init(options)
	options.name = C.CString(name)
	defer C.free(unsafe.Pointer(options.name))
	if ranks != nil {
		list := C.malloc(C.size_t(len(ranks)) * C.sizeof_int)
		defer C.free(list)
		for i, rank := range ranks {
			unsafe.Slice((*C.int)(list), len(ranks))[i] = C.int(rank)
		}
		options.ranks = (*C.int)(list)
		options.rank_count = C.size_t(len(ranks))
	}
	var g group
	return g, check(C.crunrt_group_new(rt.at, options, &g.at))
}

func (g group) rank() int { return int(C.crunrt_group_rank(g.at)) }
func (g group) size() int { return int(C.crunrt_group_size(g.at)) }
func (g group) close()    { C.crunrt_group_destroy(g.at) }

// pin returns the address of the first number. A call on the library keeps no pointer after it has
// returned, so memory of Go can be given to it.
func pin[T any](data []T) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Pointer(&data[0])
}

func (g group) sum32(data []float32) error {
	return check(C.crunrt_group_all_reduce(g.at, pin(data), pin(data), C.size_t(len(data)),
		C.CRUNRT_FLOAT32, C.CRUNRT_SUM))
}

func (g group) send(data []int64, peer int) error {
	return check(C.crunrt_group_send(g.at, pin(data), C.size_t(len(data)), C.CRUNRT_INT64,
		C.int(peer), 0))
}

func (g group) receive(data []int64, peer int) error {
	return check(C.crunrt_group_recv(g.at, pin(data), C.size_t(len(data)), C.CRUNRT_INT64,
		C.int(peer), 0))
}

// ---- the programs ----

func hello(rt runtime) error {
	arrived, err := rt.add("hello", 1)
	fmt.Printf("hello from rank %d of %d, number %d to arrive\n", rt.rank(), rt.size(), arrived)
	return err
}

func allReduce(rt runtime) error {
	world, err := rt.group("world", nil)
	if err != nil {
		return err
	}
	defer world.close()
	sum := []float32{float32(rt.rank())}
	if err := world.sum32(sum); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: the sum of all ranks is %g\n", rt.rank(), rt.size(), sum[0])
	return check(C.crunrt_group_barrier(world.at))
}

// ping lets ranks 0 and 1 send a counter to each other; then the even ranks send to their right
// before they receive from their left, and the odd ranks the other way round.
func ping(rt runtime) error {
	world, err := rt.group("world", nil)
	if err != nil {
		return err
	}
	defer world.close()
	rank, size, ball := world.rank(), world.size(), []int64{0}
	for turn := 0; turn < 4 && rank < 2 && err == nil; turn++ {
		if turn%2 == rank {
			ball[0]++
			err = world.send(ball, 1-rank)
		} else if err = world.receive(ball, 1-rank); err == nil {
			fmt.Printf("rank %d has the ball: %d\n", rank, ball[0])
		}
	}
	right, left := (rank+1)%size, (rank+size-1)%size
	fromLeft := []int64{-1}
	if err == nil && rank%2 == 0 {
		err = world.send([]int64{int64(rank)}, right)
	}
	if err == nil {
		err = world.receive(fromLeft, left)
	}
	if err == nil && rank%2 == 1 {
		err = world.send([]int64{int64(rank)}, right)
	}
	if err != nil {
		return err
	}
	fmt.Printf("rank %d got %d from its left\n", rank, fromLeft[0])
	return check(C.crunrt_group_barrier(world.at))
}

func subgroups(rt runtime) error {
	for parity, name := range []string{"evens", "odds"} {
		ranks := []int{}
		for r := parity; r < rt.size(); r += 2 {
			ranks = append(ranks, r)
		}
		if len(ranks) == 0 {
			break
		}
		g, err := rt.group(name, ranks)
		if err != nil {
			return err
		}
		if g.at == nil {
			continue
		}
		sum := []float32{float32(rt.rank())}
		if err := g.sum32(sum); err != nil {
			return err
		}
		fmt.Printf("rank %d is number %d of the %d %s; their sum is %g\n", rt.rank(), g.rank(),
			len(ranks), name, sum[0])
		if err := check(C.crunrt_group_barrier(g.at)); err != nil {
			return err
		}
		g.close()
	}
	return nil
}

const lastStep = 100

type model struct {
	step []int64
	sum  []float64
}

// runRound makes steps until all are made (true), or until the round ends (false).
func runRound(rt runtime, m *model) bool {
	world, err := rt.group("world", nil)
	if err != nil {
		return false
	}
	defer world.close()
	steps, best := make([]int64, world.size()), 0
	if C.crunrt_group_all_gather(world.at, pin(m.step), pin(steps), 1, C.CRUNRT_INT64) < 0 {
		return false
	}
	for r := range steps {
		if steps[r] > steps[best] {
			best = r
		}
	}
	newest := append([]float64{}, m.sum...)
	if C.crunrt_group_broadcast(world.at, pin(newest), 1, C.CRUNRT_FLOAT64, C.int(best)) < 0 {
		return false
	}
	m.step[0], m.sum = steps[best], newest
	for m.step[0] < lastStep {
		if rt.rank() == 1 && C.crunrt_restart_count(rt.at) == 0 && m.step[0] == 50 {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		}
		add := []float64{float64(m.step[0]) / float64(rt.size())}
		if C.crunrt_group_all_reduce(world.at, pin(add), pin(add), 1, C.CRUNRT_FLOAT64,
			C.CRUNRT_SUM) < 0 {
			return false
		}
		m.sum[0] += add[0]
		m.step[0]++
		if C.crunrt_step(rt.at, nil) != 0 {
			return false
		}
	}
	return true
}

// elastic is a small examples/elastic.c: rank 1 kills itself at step 50 of its first life; the
// other processes go on.
func elastic(rt runtime) error {
	m, rounds := model{[]int64{0}, []float64{0}}, 1
	C.crunrt_can_rejoin(rt.at, 1)
	for ; !runRound(rt, &m); rounds++ {
		if err := check(C.crunrt_rejoin(rt.at, nil)); err != nil {
			return err
		}
	}
	fmt.Printf("rank %d: %d rounds, %d steps, sum %g\n", rt.rank(), rounds, m.step[0], m.sum[0])
	return nil
}

func main() {
	programs := map[string]func(runtime) error{"hello": hello, "all_reduce": allReduce,
		"ping": ping, "subgroups": subgroups, "elastic": elastic}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: tutorial hello|all_reduce|ping|subgroups|elastic")
		os.Exit(2)
	}
	lockThread()
	rt, err := start()
	if err == nil {
		err = programs[os.Args[1]](rt)
		rt.close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, strings.TrimSpace("tutorial: "+err.Error()))
		os.Exit(1)
	}
}
