// Package browser runs a headless Chromium and pages in it, for programs that test or photograph Millrace's
// web page.
package browser

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/millrace/millrace/cmd/debian"
)

// patience is the time-out for the start of a browser and for every step on a page, on a busy machine.
const patience = 2 * time.Minute

// Browser is a running Chromium.
type Browser struct {
	ctx  context.Context
	stop func()
}

// Open starts Debian's Chromium. If it is missing, Open installs it, which needs root, and writes its
// progress to output.
func Open(ctx context.Context, output io.Writer) (*Browser, error) {
	if err := debian.Install(ctx, []string{"chromium"}, []string{"chromium", "fonts-dejavu-core"}, output); err != nil {
		return nil, fmt.Errorf("install Chromium: %w", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath("chromium"), chromedp.Flag("disable-gpu", true), chromedp.Flag("lang", "en-GB"),
		chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses a sandbox as root
	}
	allocated, release := chromedp.NewExecAllocator(ctx, options...)
	first, cancel := chromedp.NewContext(allocated)
	if err := chromedp.Do(first); err != nil {
		cancel()
		release()
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	return &Browser{ctx: first, stop: func() { cancel(); release() }}, nil
}

// Close ends the browser.
func (b *Browser) Close() { b.stop() }

// Page is a page of a browser.
type Page struct {
	ctx  context.Context
	stop func()

	mu       sync.Mutex
	troubles []string
}

// Page opens an empty page; width and height are in CSS pixels.
func (b *Browser) Page(width, height int) (*Page, error) {
	ctx, cancel := chromedp.NewContext(b.ctx)
	p := &Page{ctx: ctx, stop: cancel}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.IsException() {
				p.mu.Lock()
				p.troubles = append(p.troubles, m.String()+" "+m.URL)
				p.mu.Unlock()
			}
		}
	}()
	if err := p.Resize(width, height); err != nil {
		cancel()
		return nil, fmt.Errorf("open a page: %w", err)
	}
	return p, nil
}

// Troubles returns the browser's complaints so far: script errors, violations of the content security policy,
// and missing files.
func (p *Page) Troubles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.troubles...)
}

// Close closes the page.
func (p *Page) Close() { p.stop() }

func (p *Page) run(actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// Go navigates to a URL.
func (p *Page) Go(url string) error { return p.run(chromedp.Navigate(url)) }

// Resize changes the size of the page.
func (p *Page) Resize(width, height int) error {
	return p.run(chromedp.EmulateViewport(int64(width), int64(height)))
}

// Theme sets the preferred colour scheme, "light" or "dark".
func (p *Page) Theme(name string) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	return err
}

// Keys presses keys; package kb of chromedp has the keys that type nothing.
func (p *Page) Keys(keys string) error { return p.run(chromedp.KeyEvent(keys)) }

// Eval evaluates an expression, awaits a promise, and returns the value.
func Eval[T any](p *Page, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Until waits until an expression is true.
func (p *Page) Until(expression string) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	heartbeat := time.NewTicker(50 * time.Millisecond)
	defer heartbeat.Stop()
	for {
		held, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if held {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w (%s)", expression, ctx.Err(), strings.Join(append(p.Troubles(), fmt.Sprint(err)), "; "))
		case <-heartbeat.C:
		}
	}
}

// Photograph returns a screenshot of the page as PNG.
func (p *Page) Photograph() ([]byte, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}
