package bustest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
)

// A wrapped bus without hooks is a bus like the one that it wraps.
func TestAWrappedBusConforms(t *testing.T) {
	t.Parallel()
	streamtest.Conform(t, func(t *testing.T) bus.Bus {
		b := memory.New(memory.Options{MaxMessage: 8 << 20})
		t.Cleanup(func() { _ = b.Close() })
		return whole{Wrap(b), deeper{past{b}}}
	})
}

// whole is a wrapped bus that also answers the suite's questions about the past: those that only the
// wrapped bus has, because its methods lie deeper.
type (
	whole struct {
		*Bus
		deeper
	}
	deeper struct{ past }
	past   struct{ *memory.Bus }
)

// Each method of a bus has a hook, is counted, and fails.
func TestEachMethodIsIntercepted(t *testing.T) {
	away := errors.New("away")
	methods := reflect.TypeFor[bus.Bus]()
	intercepted := 0
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		b := &Bus{}
		hook := reflect.ValueOf(b).Elem().FieldByName("On" + name)
		if !hook.IsValid() {
			if name != "Healthy" && name != "Close" && name != "Schedule" {
				t.Errorf("%s has no hook", name)
			}
			continue
		}
		intercepted++
		called := 0
		hook.Set(reflect.MakeFunc(hook.Type(), func([]reflect.Value) (results []reflect.Value) {
			called++
			for i := range hook.Type().NumOut() {
				results = append(results, reflect.Zero(hook.Type().Out(i)))
			}
			return results
		}))
		call := func() any {
			method := reflect.ValueOf(b).MethodByName(name)
			var arguments []reflect.Value
			for i := range method.Type().NumIn() {
				arguments = append(arguments, reflect.Zero(method.Type().In(i)))
			}
			results := method.Call(arguments)
			return results[len(results)-1].Interface()
		}
		call()
		if called != 1 || b.Count(Call(name)) != 1 {
			t.Errorf("%s calls its hook %d times and is counted %d times, want once each", name, called, b.Count(Call(name)))
		}
		if name == "NoListeners" {
			continue
		}
		b.Fail(Call(name), away)
		if err := call(); err != any(away) || called != 1 {
			t.Errorf("%s that is to fail returns %v after %d calls of the hook, want %v after 1", name, err, called, away)
		}
	}
	if intercepted != 18 {
		t.Errorf("%d methods are intercepted, want 18", intercepted)
	}
}

// A call fails for the streams that are named, or for all.
func TestForWhatACallFails(t *testing.T) {
	one, other := errors.New("one"), errors.New("other")
	b := &Bus{OnStreamState: func(context.Context, string) (bus.State, error) { return bus.State{}, nil }}
	is := func(what string, wantA, wantB error) {
		t.Helper()
		_, a := b.StreamState(t.Context(), "A")
		_, b := b.StreamState(t.Context(), "B")
		if a != wantA || b != wantB {
			t.Errorf("%s: A fails with %v and B with %v, want %v and %v", what, a, b, wantA, wantB)
		}
	}
	is("without errors", nil, nil)
	b.Fail(StreamState, one, "A")
	is("one of them", one, nil)
	b.Fail(StreamState, other)
	is("all, after one", other, other)
	b.Fail(StreamState, one, "A")
	is("one with its own error", one, other)
	b.Fail(StreamState, nil, "A")
	is("without its own error", other, other)
	b.Fail(StreamState, nil)
	is("mended", nil, nil)
	b.Fail(At, one)
	is("another method", nil, nil)
	if all, a, both := b.Count(StreamState), b.Count(StreamState, "A"), b.Count(StreamState, "A", "B"); all != 14 || a != 7 || both != 14 {
		t.Errorf("counted are %d calls, %d of A and %d of both, want 14, 7 and 14", all, a, both)
	}
}

// Errors change and calls are counted while others call.
func TestConcurrentCalls(t *testing.T) {
	b := Wrap(memory.New(memory.Options{}))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				b.Fail(Broadcast, map[bool]error{true: bus.ErrClosed}[i%2 == 0], "t")
				if err := b.Broadcast("t", nil); err != nil && !errors.Is(err, bus.ErrClosed) {
					t.Errorf("broadcast: %v, want %v or nil", err, bus.ErrClosed)
				}
			}
		})
	}
	all.Wait()
	if n := b.Count(Broadcast, "t"); n != 800 {
		t.Errorf("%d calls are counted, want 800", n)
	}
}

// An appender that was opened fails and is counted like the bus that it belongs to.
func TestAnOpenedAppenderFails(t *testing.T) {
	away, stored := errors.New("away"), 0
	b := &Bus{OnAppend: func(context.Context, kinds.Name) (bus.Appender, error) {
		return &Appender{OnAppend: func(context.Context, events.Message) error { stored++; return nil }}, nil
	}}
	a, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		on     kinds.Name
		want   error
		stored int
	}{{"nodes", nil, 1}, {"pods", away, 1}} {
		b.Fail(AppendMessage, away, string(c.on))
		if err := a.Append(t.Context(), events.Message{}); err != c.want || stored != c.stored {
			t.Errorf("while appends to the log of %s fail: %v and %d stored, want %v and %d", c.on, err, stored, c.want, c.stored)
		}
	}
	if opened, appended := b.Count(Append), b.Count(AppendMessage, "pods"); opened != 1 || appended != 2 {
		t.Errorf("counted are %d appenders opened and %d messages, want 1 and 2", opened, appended)
	}
}

// The calls of an appender are intercepted one by one.
func TestAnAppenderIsIntercepted(t *testing.T) {
	away := errors.New("away")
	inner := &Appender{OnLast: func() uint64 { return 3 }}
	inner.OnFlush = func(context.Context) error { return nil }
	refusing, unflushed := Refusing(inner, away), Unflushed(inner, away)
	if err := refusing.Append(t.Context(), events.Message{}); err != away {
		t.Errorf("a refusing appender appends: %v, want %v", err, away)
	}
	if err := refusing.Flush(t.Context()); err != nil || refusing.Last() != 3 {
		t.Errorf("a refusing appender flushes: %v, and ends at %d, want nil and 3", err, refusing.Last())
	}
	if err := unflushed.Flush(t.Context()); err != away {
		t.Errorf("an unflushed appender flushes: %v, want %v", err, away)
	}
}
