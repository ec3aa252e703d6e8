package ui

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/test/ui/browser"
	"github.com/millrace/millrace/test/ui/program"
)

// place is a bus with the record of a shop, and its page.
type place struct {
	*recordtest.Shop
	dir     string
	port    int
	bus     *program.Process
	page    *program.Process
	address string // of the page
}

// all is shared by the tests, because building, starting and filling take longer than the checks.
var all struct {
	once    sync.Once
	dir     string
	binary  string
	browser *browser.Browser
	place   *place
	err     error
}

func TestMain(m *testing.M) {
	code := clustertest.Run(m)
	if all.browser != nil {
		all.browser.Close()
	}
	if all.place != nil {
		all.place.close()
	}
	if err := os.RemoveAll(all.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// here returns the shared place.
func here(t *testing.T) *place {
	t.Helper()
	all.once.Do(func() { all.err = begin() })
	if all.err != nil {
		t.Fatal(all.err)
	}
	return all.place
}

func begin() (err error) {
	ctx := context.Background()
	if all.dir, err = os.MkdirTemp("", "millrace-ui-"); err != nil {
		return err
	}
	if all.binary, err = program.Build(all.dir); err != nil {
		return err
	}
	if all.browser, err = browser.Open(ctx, os.Stderr); err != nil {
		return err
	}
	all.place, err = open(ctx, filepath.Join(all.dir, "shared"))
	return err
}

// open starts a bus and a page, and stores the story of a shop.
func open(ctx context.Context, dir string) (p *place, err error) {
	p = &place{dir: dir}
	if p.port, err = clustertest.FreePort(); err != nil {
		return nil, err
	}
	if err := p.startBus(); err != nil {
		return nil, err
	}
	b, err := stream.Connect(ctx, stream.Options{URL: clustertest.BusURL(fmt.Sprintf("127.0.0.1:%d", p.port)), Name: "ui-test"})
	if err != nil {
		return nil, errors.Join(err, p.bus.Stop())
	}
	teller, err := recordtest.New(ctx, b, append([]kinds.Kind{kinds.ClusterRoles.Kind}, recordtest.ShopKinds...), []string{recordtest.Deployments, recordtest.ReplicaSets})
	if err != nil {
		return nil, errors.Join(err, p.bus.Stop())
	}
	if p.Shop, err = recordtest.OpenShop(ctx, teller); err != nil {
		return nil, errors.Join(err, p.bus.Stop())
	}
	if p.page, err = program.Start(all.binary, "The page is at ", "ui", "--nats-url="+p.nats(), "--listen=127.0.0.1:0", "--no-token"); err != nil {
		return nil, errors.Join(err, p.bus.Stop())
	}
	p.address = strings.TrimSuffix(p.page.Said, "/")
	return p, nil
}

func (p *place) nats() string { return fmt.Sprintf("nats://127.0.0.1:%d", p.port) }

func (p *place) startBus() (err error) {
	p.bus, err = program.Start(all.binary, "", "bus", "--data-dir="+p.dir, fmt.Sprintf("--nats-listen=127.0.0.1:%d", p.port), "--health-address=")
	return err
}

func (p *place) close() {
	for _, one := range []*program.Process{p.page, p.bus} {
		if err := one.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// visit opens a view of a place, in a size and a theme. At the end of the test the browser must not have
// complained, except about the expected texts.
func visit(t *testing.T, p *place, width, height int, theme, query string, expected ...string) *look {
	t.Helper()
	page, err := all.browser.Page(width, height)
	if err != nil {
		t.Fatal(err)
	}
	l := &look{t, page}
	t.Cleanup(func() {
		for _, trouble := range page.Troubles() {
			ok := strings.Contains(trouble, "504") // a slow machine; the page retries
			for _, words := range expected {
				ok = ok || strings.Contains(trouble, words)
			}
			if !ok {
				t.Errorf("the browser complains: %s", trouble)
			}
		}
		page.Close()
	})
	l.must(page.Theme(theme))
	l.must(page.Go(p.address + "/" + query))
	l.until(`document.querySelector("main h1")`)
	return l
}

// look is a page that a test checks.
type look struct {
	*testing.T
	*browser.Page
}

func (l *look) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *look) until(expression string) {
	l.Helper()
	l.must(l.Until(expression))
}

func (l *look) keys(keys string) {
	l.Helper()
	l.must(l.Keys(keys))
}

// value evaluates an expression.
func value[T any](l *look, expression string) T {
	l.Helper()
	v, err := browser.Eval[T](l.Page, expression)
	l.must(err)
	return v
}

// text is the visible text of the elements that a selector finds, with single spaces.
func (l *look) text(selector string) string {
	l.Helper()
	return value[string](l, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.innerText).join("\n").replace(/[ \t\u00a0]+/g, " ").trim()`, selector))
}

// says waits until the elements that a selector finds show all of the words.
func (l *look) says(selector string, words ...string) {
	l.Helper()
	for _, w := range words {
		l.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.replace(/\s+/g, " ").includes(%q))`, selector, w))
	}
}

// settled waits until an object's page has loaded its history and every response that it has requested: after
// that the content does not change.
func (l *look) settled() {
	l.Helper()
	l.until(`document.querySelector(".title .chip") && !document.querySelector("[aria-busy]")`)
}

// at is the query of the current URL.
func (l *look) at() url.Values {
	l.Helper()
	v, err := url.ParseQuery(strings.TrimPrefix(value[string](l, "location.search"), "?"))
	l.must(err)
	return v
}
