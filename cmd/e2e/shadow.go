package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// caughtUp is how long the comparison may go on after the last test: an effect that only Millrace wants
// counts as a difference after a minute.
const caughtUp = 90 * time.Second

// open matches a metric of a shadow that still waits for an effect.
var open = regexp.MustCompile(`(?m)^millrace_shadow_open\{[^}]*\} [^0]`)

// agreement prints how far Millrace in shadow agrees with kube-controller-manager.
//
// Errors: errFailed, if they differ.
func (s *stage) agreement(ctx context.Context, out io.Writer, o options) error {
	if o.by != "shadow" {
		return nil
	}
	s.catchUp(ctx)
	file, err := os.Create(filepath.Join(o.out, "shadow.txt"))
	if err != nil {
		return fmt.Errorf("create the report of the shadow: %w", err)
	}
	defer file.Close()
	show := exec.CommandContext(ctx, o.binary, "shadow", "--nats-url=nats://"+s.nats, "--exit-code", "--examples=20")
	show.Stdout, show.Stderr = io.MultiWriter(out, file), os.Stderr
	var failed *exec.ExitError
	if err := show.Run(); errors.As(err, &failed) {
		return errFailed
	} else if err != nil {
		return fmt.Errorf("show the agreement: %w", err)
	}
	return nil
}

// catchUp waits until the shadow waits for no effect, or until [caughtUp] is over.
func (s *stage) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, caughtUp)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for quiet := 0; quiet < 5; quiet++ { // the comparison is a second behind
		if text, err := scrape(ctx, "http://"+s.health+"/metrics"); err != nil || open.Match(text) {
			quiet = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func scrape(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
