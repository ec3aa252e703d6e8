package kubeconfig

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A service that has waited for an API server which is restarted is not refused by what that forbids
// until it has read its roles.
func TestAnAPIServerThatHasJustStartedForbidsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, answers := time.Now(), map[string]int{}
		err := reached(t.Context(), "https://127.0.0.1:6443", func() error {
			switch since := time.Since(began); {
			case since < 12*time.Second:
				answers["no answer"]++
				return errors.New("connection refused")
			case since < 14*time.Second, since >= 16*time.Second && since < 25*time.Second:
				answers["forbidden"]++
				return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no role yet"))
			case since < 16*time.Second:
				return errors.New("connection reset")
			default:
				return nil
			}
		})
		if took := time.Since(began); err != nil || took != 25*time.Second || answers["no answer"] == 0 || answers["forbidden"] == 0 {
			t.Errorf("after %v: %v; %v", took, err, answers)
		}
	})
}

// A service that starts while the API server is away waits for it, for a limited time; refused
// credentials are an error at once.
func TestTheAPIServerIsWaitedFor(t *testing.T) {
	down := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no role yet"))
	for name, c := range map[string]struct {
		err   error
		until time.Duration // when it answers; 0: never
		takes time.Duration
		fails bool
	}{
		"it restarts":           {down, 20 * time.Second, 20 * time.Second, false},
		"it is not there":       {down, 0, absence, true},
		"it learns of the role": {forbidden, 5 * time.Second, 5 * time.Second, false},
		"it forbids it":         {forbidden, 0, reach, true},
		"it knows us not":       {apierrors.NewUnauthorized("who?"), 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := reached(t.Context(), "https://127.0.0.1:6443", func() error {
					if c.until > 0 && time.Since(began) >= c.until {
						return nil
					}
					return c.err
				})
				if took := time.Since(began); (err != nil) != c.fails || took != c.takes {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

func TestDeadConnectionsAreNoticedSoonUnlessToldOtherwise(t *testing.T) {
	const idle, ping = "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"
	t.Setenv(idle, "7")
	t.Setenv(ping, "") // so that it is put back afterwards
	if err := os.Unsetenv(ping); err != nil {
		t.Fatal(err)
	}
	if err := noticeDeadConnections(); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(idle) != "7" || os.Getenv(ping) != "5" {
		t.Errorf("the pace is %s and %s s, want 7, as it was set, and 5", os.Getenv(idle), os.Getenv(ping))
	}
}
