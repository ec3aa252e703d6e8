package command

import (
	"bytes"
	"os"
	"testing"
)

// TestAccountsAreGenerated: the accounts file is the output of this version.
func TestAccountsAreGenerated(t *testing.T) {
	want := new(bytes.Buffer)
	cmd := newBusAccounts()
	cmd.SetArgs([]string{})
	cmd.SetOut(want)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../deployments/nats/accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Error("deployments/nats/accounts.conf is not what the program prints: run make accounts")
	}
}
