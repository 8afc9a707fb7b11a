"""Any command-line model as an author of kernels: ``--model 'command:python examples/command_model.py llm -m NAME'``.

opsmith writes a question to standard input and reads the reply from standard output; the words after this file's name
are the program that answers, which gets the whole question as text.
"""

import json
import subprocess
import sys

question = json.load(sys.stdin)
text = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in question["messages"])
answer = subprocess.run(sys.argv[1:], input=text, capture_output=True, text=True, check=True)
print(json.dumps({"text": answer.stdout}))
