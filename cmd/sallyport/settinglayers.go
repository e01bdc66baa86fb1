package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// noDelimiter keeps koanf from reading a dot in a name as a path: a dotted key is an unknown one and is named as it was written.
const noDelimiter = "\x00"

func configPath(flags *pflag.FlagSet, environ []string) string {
	if f := flags.Lookup("config"); f != nil && f.Changed {
		return f.Value.String()
	}
	for _, e := range environ {
		if path, ok := strings.CutPrefix(e, envPrefix+"CONFIG="); ok {
			return path
		}
	}
	return ""
}

func fileLayer(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file, nothing set
	}
	k := koanf.New(noDelimiter)
	if err := k.Load(file.Provider(path), oneDocument{}); err != nil {
		if missing, ok := errors.AsType[*os.PathError](err); ok {
			return nil, fmt.Errorf("config: %w", missing)
		}
		return nil, fmt.Errorf("%s: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	values := make(map[string]any)
	kinds := settingKinds()
	for key, v := range k.Raw() {
		t, known := kinds[key]
		if !known {
			return nil, fmt.Errorf("%s: unknown key %q (the names are those of the flags of serve)", path, key)
		}
		typed, err := t.read(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, key, err)
		}
		values[key] = typed
	}
	return values, nil
}

// oneDocument reads YAML and refuses a second document, which koanf's own parser would drop without a word.
type oneDocument struct{}

func (oneDocument) Unmarshal(b []byte) (map[string]any, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	values := map[string]any{}
	if err := dec.Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("a second document; put all settings into one")
	}
	return values, nil
}

func (oneDocument) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

// envLayer takes the variables that mirror a flag. Others with the prefix belong to other commands.
func envLayer(environ []string) (map[string]any, error) {
	kinds := settingKinds()
	var bad error
	k := koanf.New(noDelimiter)
	err := k.Load(env.Provider(noDelimiter, env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
			t, known := kinds[key]
			if !known || value == "" { // set and empty is how a unit or compose file leaves a variable out
				return "", nil
			}
			typed, err := t.read(value)
			if err != nil {
				bad = fmt.Errorf("%s: %w", name, err)
			}
			return key, typed
		},
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	return k.Raw(), bad
}

func flagLayer(flags *pflag.FlagSet) (map[string]any, error) {
	k := koanf.New(noDelimiter)
	if err := k.Load(posflag.Provider(flags, noDelimiter, nil), nil); err != nil { // nil: only those that were given
		return nil, fmt.Errorf("flags: %w", err)
	}
	values := k.Raw()
	delete(values, "config")
	return values, nil
}

// read gives a value of a file or of the environment its type.
func (t kind) read(v any) (any, error) {
	switch t {
	case kindSwitch:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		b, err := strconv.ParseBool(fmt.Sprint(v))
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", fmt.Sprint(v))
		}
		return b, nil
	case kindList:
		if all, ok := v.([]any); ok {
			texts := make([]string, len(all))
			for i, e := range all {
				texts[i] = fmt.Sprint(e)
			}
			return texts, nil
		}
		return strings.FieldsFunc(fmt.Sprint(v), func(r rune) bool { return r == ',' || r == ' ' }), nil
	case kindNumber:
		switch v.(type) {
		case string, int, int64, uint64:
			return fmt.Sprint(v), nil
		}
		return nil, fmt.Errorf("%v is no whole number", v)
	default:
		if s, ok := v.(string); ok {
			return s, nil
		}
		return nil, fmt.Errorf("%v is no text", v)
	}
}
