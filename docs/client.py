"""Ask ARR-COC from Python, over the API of a running page.

    pip install gradio_client
    python client.py http://127.0.0.1:7860/ picture.jpg "What is on the small sign?"

The address may also be a Space's, https://OWNER-NAME.hf.space/. Refusals come as one sentence. No token is
sent: for a private Space of your own give `token=` one that reads it, to that address alone.
"""

import sys

from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from gradio_client.utils import QueueError

if len(sys.argv) != 4:
    sys.exit(__doc__)
address, picture, question = sys.argv[1:]
try:
    client = Client(address, token=False, verbose=False)
    result = client.predict(handle_file(picture), question, share=0.2, api_name="/compare")
    where = client.predict(handle_file(picture), question, share=0.2, api_name="/relevance")
except QueueError:
    sys.exit("The queue is full; try again in a minute.")
except (AppError, ValueError, OSError) as error:
    sys.exit(str(error))

for name in ("full", "focused"):
    look = result[name]  # a look that failed has its sentence in "error", the other one stands
    tokens, seconds = look["visual_tokens"], look["time_to_first_token_s"]
    print(f"{name}: {look['error'] or look['text']} ({tokens} visual tokens, {seconds:.2f} s)")
rows, columns = where["grid"]
print(f"looked at {len(where['cells'])} of {rows * columns} places")
