package watcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

const (
	widgets kinds.Name = "widgets.example.com"
	crds    kinds.Name = "customresourcedefinitions.apiextensions.k8s.io"
)

// definitions makes a watcher watch CRDs and APIServices.
func definitions(c *Config) {
	c.Kinds = append(c.Kinds, kinds.Kind{Name: crds, Version: "v1", Kind: "CustomResourceDefinition", Form: kinds.Metadata})
}

// every2s returns times two seconds apart.
func every2s(from, to time.Duration) (all []time.Duration) {
	for ; from <= to; from += 2 * time.Second {
		all = append(all, from)
	}
	return all
}

// Discovery runs every two seconds for a minute after a change, and while it fails or another
// watcher runs; every ten seconds otherwise.
func TestHowOftenKindsAreLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		b := memory.New(memory.Options{})
		began := time.Now()
		service, _ := start(t, s, b, "one", every, definitions)
		time.Sleep(85 * time.Second)
		watchertest.InTime(t, "after a start", s.Since("apis", began), append(every2s(0, time.Minute), 70*time.Second, 80*time.Second)...)

		fails := began.Add(85 * time.Second)
		s.Refuse("apis", http.StatusServiceUnavailable)
		time.Sleep(10 * time.Second) // virtual, as all of them here
		watchertest.InTime(t, "when it fails", s.Since("apis", fails), every2s(5*time.Second, 9*time.Second)...)
		if got := testutil.ToFloat64(service.metrics.undiscovered); got != 3 {
			t.Errorf("%v failures are counted, want 3", got)
		}
		if err := service.Checks()["api"](); err == nil {
			t.Error("a discovery that fails does not fail the check of the API server")
		}
		s.Break(nil)
		time.Sleep(time.Second + 15*time.Second)
		watchertest.InTime(t, "when it goes on", s.Since("apis", fails.Add(10*time.Second)), time.Second, 11*time.Second)
		if err := service.Checks()["api"](); err != nil {
			t.Errorf("a discovery that goes on fails the check of the API server: %v", err)
		}

		stirred := time.Now()
		s.Edit("customresourcedefinitions", "widgets.example.com", func(*corev1.Pod) {})
		time.Sleep(80 * time.Second)
		const first = discoverEvery / 4
		watchertest.InTime(t, "after a definition has changed", s.Since("apis", stirred), append(every2s(first, time.Minute+first), 70*time.Second+first)...)

		_, stop := start(t, s, b, "two")
		time.Sleep(10 * time.Second)
		joined := time.Now()
		time.Sleep(10 * time.Second)
		if got := len(s.Since("apis", joined)); got != 5 {
			t.Errorf("beside another watcher it looks %d times in ten seconds, want 5", got)
		}
		stop()
		time.Sleep(15 * time.Second)
		left := time.Now()
		time.Sleep(20 * time.Second)
		if got := len(s.Since("apis", left)); got != 2 {
			t.Errorf("alone again it looks %d times in twenty seconds, want 2", got)
		}
	})
}

// A watcher whose scope lacks CRDs or APIServices, or both, cannot rest.
func TestAScopeWithoutDefinitionsDoesNotRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		began := time.Now()
		start(t, s, memory.New(memory.Options{}), "one", every, func(c *Config) { c.Scope = Other })
		time.Sleep(3*time.Minute + time.Second)
		watchertest.InTime(t, "it looks", s.Since("apis", began), every2s(0, 3*time.Minute)...)
	})
}

// A watcher with a fixed list of kinds runs no discovery.
func TestKindsThatAreToldAreNotLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		s.Serve(watchertest.Widgets)
		b := memory.New(memory.Options{})
		service, _ := start(t, s, b, "one")
		time.Sleep(time.Minute)
		if asked := s.Since("apis", time.Time{}); len(asked) != 0 || service.watches(widgets) {
			t.Errorf("the watcher asked %d times which kinds exist, and watches another one: %t; want neither", len(asked), service.watches(widgets))
		}
		if !service.Synced() {
			t.Errorf("the watcher is not synced: %v", service.checkSynced())
		}
	})
}

// Run returns an error after a minute if the API server never answers, and after the eighth refusal
// if it refuses.
func TestHowLongAStartIsTried(t *testing.T) {
	run := func(t *testing.T, s *watchertest.Server) error {
		config := Config{Bus: memory.New(memory.Options{}), Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: "one"}
		config.REST = s.REST()
		service, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		err = service.Run(t.Context())
		if (service.Checks()["api"]() == nil) != (err == nil) {
			t.Errorf("the run ends with %v, and the check with %v", err, service.Checks()["api"]())
		}
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		s.Vanish()
		began := time.Now()
		if err := run(t, s); !errors.Is(err, ErrUnreachable) || time.Since(began) <= startPatience || time.Since(began) > startPatience+time.Second {
			t.Errorf("the watcher ends after %v: %v; want ErrUnreachable after its patience", time.Since(began), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		s.Refuse("", http.StatusUnauthorized)
		began := time.Now()
		if err := run(t, s); !errors.Is(err, ErrRefused) || len(s.Since("api", began)) != 8 {
			t.Errorf("the watcher ends after %d refusals: %v; want ErrRefused after 8", len(s.Since("api", began)), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		ctx, cancel := context.WithCancel(t.Context())
		s.Refuse("", http.StatusServiceUnavailable)
		service, err := New(Config{REST: nil, Bus: memory.New(memory.Options{})})
		if err == nil || service != nil {
			t.Error("a watcher is made without an API server")
		}
		config := Config{Bus: memory.New(memory.Options{}), ID: "one"}
		config.REST = s.REST()
		if service, err = New(config); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(30*time.Second, cancel)
		if err := service.Run(ctx); err != nil || time.Since(began) != 30*time.Second {
			t.Errorf("one that is ended while it waits ends after %v: %v", time.Since(began), err)
		}
	})
}

// After ten seconds in which a kind was not served, the watcher records its objects as gone. It
// records the mark again every twenty minutes, and removes the streams when their messages have
// expired.
func TestWhenAKindIsRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		s.Serve(watchertest.Widgets)
		s.Edit("widgets", "w", func(*corev1.Pod) {})
		b := memory.New(memory.Options{LogAge: 2 * time.Hour})
		service, stop := start(t, s, b, "one", every)
		log := func() string { return strings.Join(watchertest.Ops(watchertest.LogOfKind(t, b, widgets)), " ") }
		time.Sleep(9 * time.Second)
		if got := log(); got != "is w mark" {
			t.Fatalf("at first it is told as %s", got)
		}
		s.Unserve(watchertest.Widgets)
		time.Sleep(2 * time.Second) // by then it is known
		for range 8 {
			time.Sleep(time.Second)
			if got := log(); got != "is w mark" {
				t.Fatalf("too soon it is told as %s", got)
			}
		}
		time.Sleep(2 * time.Second)
		if got := log(); got != "is w mark gone w mark" || service.watches(widgets) {
			t.Fatalf("after ten seconds the log of the kind is %s, and it is watched: %t; want it ended", got, service.watches(widgets))
		}
		time.Sleep(retiredMarkEvery - 15*time.Second)
		if got := log(); got != "is w mark gone w mark" {
			t.Errorf("before twenty minutes are over the log of the kind is %s, want no further mark", got)
		}
		time.Sleep(30 * time.Second)
		if got := log(); got != "is w mark gone w mark mark" {
			t.Errorf("after twenty minutes the log of the kind is %s, want another mark", got)
		}
		time.Sleep(90 * time.Minute)
		if all, err := b.Kinds(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("before its messages have expired there are %d kinds, %v; want 2", len(all), err)
		}
		time.Sleep(50 * time.Minute)
		if all, err := b.Kinds(t.Context()); err != nil || len(all) != 1 || all[0].Name != "pods" {
			t.Errorf("when its messages have expired the kinds are %v, %v; want pods", all, err)
		}
		if stop(); len(service.retired) != 0 || len(service.missing) != 0 {
			t.Errorf("of a forgotten kind the watcher keeps %v, missing since %v; want nothing", service.retired, service.missing)
		}
	})
}

// The watcher reports a kind that it cannot watch after half a minute, again every twenty seconds,
// and once more when it can.
func TestAReportOfKindsThatAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		s.Serve(watchertest.Widgets)
		s.Refuse("widgets", http.StatusForbidden)
		b := memory.New(memory.Options{})
		if err := b.EnsureController(t.Context(), "any"); err != nil { // which makes the stream of reports
			t.Fatal(err)
		}
		start(t, s, b, "one", every)
		began := time.Now()
		reports := func() (all []string) {
			at := watchertest.Standing(t, b, subject.StatusStream)
			for sequence := at.First; sequence <= at.Last; sequence++ {
				m, there, err := b.At(t.Context(), subject.StatusStream, sequence)
				if err != nil || !there || m.Subject != subject.WatcherStatusSubject {
					continue
				}
				r, err := report.DecodeReport(m)
				if err != nil {
					t.Fatal(err)
				}
				var of []string
				for _, u := range r.Unwatched {
					of = append(of, string(u.Kind))
				}
				all = append(all, fmt.Sprintf("%v %s%v", m.Time.Sub(began).Round(5*time.Second), r.Replica, of))
			}
			return all
		}
		time.Sleep(57 * time.Second)
		s.Break(nil)
		time.Sleep(23 * time.Second)
		want := []string{"35s one[widgets.example.com]", "55s one[widgets.example.com]", "... one[]"}
		if got := reports(); len(got) != 3 || !slices.Equal(got[:2], want[:2]) || !strings.HasSuffix(got[2], "one[]") {
			t.Errorf("the reports are %q, want %q", got, want)
		}
	})
}
