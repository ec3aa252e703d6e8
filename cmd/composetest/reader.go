package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
)

// letIn checks that the bus refuses clients without a name or with a wrong password, and gets the login of
// the read-only user.
func letIn(ctx context.Context, s *stage) (string, error) {
	out, err := s.composed(ctx, "--profile", "tools", "run", "--rm", "-T", "reader").Output()
	if err != nil {
		return "", fmt.Errorf("run reader: %w", err)
	}
	lines := regexp.MustCompile(`(?s)^export MILLRACE_NATS_URL='([^']*)'\s+export MILLRACE_NATS_CA_DATA='([^']*)'`).FindSubmatch(bytes.TrimSpace(out))
	if lines == nil {
		return "", fmt.Errorf("the reader is told %q", out)
	}
	s.bus, s.busCA = string(lines[1]), string(lines[2])
	if !strings.HasPrefix(s.bus, "tls://reader:") {
		return "", fmt.Errorf("the reader is told %q", s.bus)
	}
	for _, address := range []string{s.at("nats", "NATS_PORT"), strings.Replace(s.bus, "@", "x@", 1)} {
		_, _, err := (&connect.Source{Connection: connect.Connection{URL: address, CAData: s.busCA}}).Open(ctx, patience)
		if err == nil || !strings.Contains(err.Error(), "uthorization") {
			return "", fmt.Errorf("a client without a password is told: %w", errors.Join(err, errLetIn))
		}
	}
	return "the reader, and no client without a password", nil
}

var errLetIn = errors.New("the bus must send him away")

// millrace runs a millrace command on this machine as the read-only user.
func (s *stage) millrace(ctx context.Context, args ...string) ([]byte, error) {
	cmd := s.command(ctx, append([]string{filepath.Join(s.checkout, "bin", "linux", "millrace")}, args...)...)
	cmd.Env = append(cmd.Env, "MILLRACE_NATS_URL="+s.bus, "MILLRACE_NATS_CA_DATA="+s.busCA)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("millrace %s: %w: %s", args[0], err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// question is a command of the record, and the text that its answer must contain in the end.
type question struct {
	args []string
	says string
}

// readRecord checks what the commands of the record say about a Deployment that was scaled.
func readRecord(ctx context.Context, s *stage) (string, error) {
	web := func(command string, args ...string) []string {
		return append([]string{command, "deployment/web", "--namespace=" + traced}, args...)
	}
	return "history, get, why, why-not, retention, lag, parked, replay and export answer", answered(ctx, s.millrace, []question{
		{web("history"), "Deployment"},
		{[]string{"get", "deployments", "--namespace=" + traced}, "web"},
		{web("why", "--field=.status.replicas"), "deployment-controller"},
		{web("why-not", "--controller=deployment-controller"), "last write turn"},
		{[]string{"retention"}, "EV_pods"},
		{[]string{"lag"}, " is behind: "},
		{[]string{"parked"}, ""},
		{[]string{"replay", "--controller=deployment-controller"}, "turns"},
		{[]string{"export", filepath.Join(s.dir, "record.millrace")}, "messages"},
	})
}

// answered repeats each question until the answer is the expected one: the record grows while the command
// reads it, and the namespaces of earlier steps are still being deleted.
func answered(ctx context.Context, ask func(ctx context.Context, args ...string) ([]byte, error), questions []question) error {
	for _, q := range questions {
		err := poll(ctx, func() error {
			out, err := ask(ctx, q.args...)
			if err != nil {
				return err
			}
			if !strings.Contains(string(out), q.says) {
				return fmt.Errorf("millrace %s does not say %q but %s", strings.Join(q.args, " "), q.says, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// openPage starts the web page, which must answer from the record.
func openPage(ctx context.Context, s *stage) (string, error) {
	if err := s.do(ctx, "--profile", "ui", "up", "-d", "ui"); err != nil {
		return "", err
	}
	return "the page is served, by who only reads", poll(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at("http", "UI_PORT")+"/api/lag", nil)
		if err != nil {
			return fmt.Errorf("ask the page: %w", err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return fmt.Errorf("ask the page: %w", err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("replicaset-controller")) {
			return fmt.Errorf("the page answers %s: %w", response.Status, errors.Join(err, errNoPage))
		}
		return nil
	})
}

var errNoPage = errors.New("that is not the page")
